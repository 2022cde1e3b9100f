package control

import (
	"encoding/binary"
	"errors"
	"testing"

	"xwarp/ddp/rdmap"
	"xwarp/engine/testkit/havoc"
)

// FuzzRing operates each side of a ring while the other side, a lying program or daemon, writes to the shared memory:
// geometry, indices, words and slots. A slot must always be in the ring's own memory, an impossible index must be an
// error, and parsing any slot must not panic.
func FuzzRing(f *testing.F) {
	g := NewGeometry(0, 4, 40)
	first := func(ops ...byte) []byte {
		b := binary.LittleEndian.AppendUint32(nil, g.Offset)
		b = binary.LittleEndian.AppendUint32(b, g.Slots)
		b = binary.LittleEndian.AppendUint32(b, g.SlotSize)
		return append(b, ops...)
	}
	const (
		poke = iota
		put
		take
		mark
		ops
	)
	slot := make([]byte, CompletionSlot)
	PutCompletion(slot, 2, &rdmap.Completion{ID: 1, Op: rdmap.WRRead, ByteLen: 3})
	f.Add(first(put, put, take, mark, take, take))
	f.Add(first(poke, tailAt, 5, 0, 0, 0, take))
	f.Add(first(poke, headAt, 0xff, 0xff, 0xff, 0xff, put))
	f.Add(first(put, poke, slotsAt, 1, 2, 3, 4, take, poke, tailAt, 3, 0, 0, 0, take,
		take, take, take))
	havoc.Fuzz(f, func(t *testing.T, in []byte) {
		mem := make([]byte, 8192)
		if len(in) < 12 {
			return
		}
		g := Geometry{binary.LittleEndian.Uint32(in), binary.LittleEndian.Uint32(in[4:]),
			binary.LittleEndian.Uint32(in[8:])}
		c, err := NewConsumer(mem, g)
		p, err2 := NewProducer(mem, g)
		if (err == nil) != (err2 == nil) {
			t.Fatalf("%+v: %v, %v", g, err, err2)
		}
		if err != nil {
			return
		}
		if uint64(g.Offset)+uint64(g.Len()) > uint64(len(mem)) || c.Cap() != int(g.Slots) {
			t.Fatalf("%+v lies in %d bytes", g, len(mem))
		}
		inside := func(b []byte, err error) bool {
			if err != nil && !errors.Is(err, ErrIndex) {
				t.Fatal(err)
			}
			if b != nil && (err != nil || len(b) != int(g.SlotSize) || cap(b) != len(b)) {
				t.Fatalf("a slot of %d bytes in %+v, %v", len(b), g, err)
			}
			return b != nil
		}
		for in = in[12:]; len(in) > 0; {
			op := in[0] % ops
			switch in = in[1:]; op {
			case poke:
				if len(in) < 5 {
					return
				}
				ring := mem[g.Offset:][:g.Len()]
				copy(ring[int(in[0])*len(ring)/256&^3:], in[1:5])
				if at := int(in[0]); at == headAt || at == tailAt {
					copy(ring[at:], in[1:5])
				}
				in = in[5:]
			case put:
				if b, err := p.Next(); inside(b, err) {
					copy(b, slot)
					p.Publish()
				}
			case take:
				n, lenErr := c.Len()
				b, err := c.Next()
				if (lenErr == nil) != (err == nil) || n < 0 || n > c.Cap() ||
					(n > 0) != (b != nil) {
					t.Fatalf("%d entries, %v; %v", n, lenErr, err)
				}
				if !inside(b, err) {
					continue
				}
				read(t, b)
				c.Release()
			case mark:
				Arm(c.Armed())
				if !Disarm(p.Armed()) || Disarm(p.Armed()) {
					t.Fatal("a word that was armed is not, or still")
				}
			}
		}
	})
}

// read parses a slot as every type that it can be.
func read(t *testing.T, b []byte) {
	b = append(b, make([]byte, max(0, SendSlot(4, 64)-len(b)))...)
	_, c := ParseCompletion(b)
	_ = c.Op.String() + c.Status.String()
	var s rdmap.SendWR
	if err := ParseSend(b, 4, 64, &s); err == nil && (len(s.SGL) > 4 || len(s.Inline) > 64) {
		t.Fatalf("%d pieces, %d inline", len(s.SGL), len(s.Inline))
	}
	var r rdmap.RecvWR
	if err := ParseRecv(b, 4, &r); err == nil && len(r.SGL) > 4 {
		t.Fatalf("%d pieces", len(r.SGL))
	}
}

// FuzzReply parses replies that a lying daemon may send to a program.
func FuzzReply(f *testing.F) {
	f.Add(Marshal(Reply{ID: 1, Result: Marshal(CreateQPResult{Send: NewGeometry(0, 4, 64)})}))
	f.Add(Marshal(Reply{ID: 2, Error: &Error{Code: CodeQuota, Text: "no"}}))
	f.Add(Marshal(Event{Event: EventDown, QP: 3, Error: &Error{Code: CodeInternal}}))
	havoc.Fuzz(f, func(t *testing.T, b []byte) {
		r, err := ParseReply(b)
		if err == nil && r.Error != nil {
			_ = AsError(r.Error).Error()
		}
		if _, err := ParseReply(Marshal(&r)); err != nil {
			t.Fatalf("%+v is not the same again: %v", r, err)
		}
		if e, err := ParseEvent(b); err == nil && e.Error != nil {
			_ = e.Error.Error()
		}
	})
}
