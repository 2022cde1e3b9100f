package mpa

import (
	"testing"

	"xwarp/mpa/ulpdu"
	"xwarp/tcp/checksum"
	"xwarp/tcp/seq"
)

// offerAll gives a layered Receiver the bytes of b as a socket may, in pieces of up to most bytes. What it does not
// keep is offered again with the bytes behind it.
func offerAll(r *Receiver, b []byte, most int) (err error) {
	for at, n := 0, 0; at < len(b); {
		n = min(n+most, len(b)-at)
		kept, e := r.Offer(seq.Num(at), [][]byte{b[at : at+n]}, n, checksum.Known{})
		if e != nil {
			return e
		}
		if kept == 0 && at+n == len(b) {
			return nil
		}
		at, n = at+kept, n-kept
	}
	return nil
}

// TestLayered sends messages over a transport that delivers every byte once and in order, in pieces of any
// size: FPDUs of any size are delivered as soon as their last byte is there.
//
//req:rfc5044-4.3-6
func TestLayered(t *testing.T) {
	for _, f := range framings {
		for _, pack := range []bool{false, true} {
			for _, most := range []int{1, 700, 20000, 1 << 20} {
				src := &messageSource{left: 60000, most: 7001}
				var s Sender
				s.Init(SenderConfig{f, pack}, 0, 9000, src)
				var stream []byte
				for {
					n, _ := s.Next(70000)
					if n == 0 {
						break
					}
					at := seq.Num(len(stream))
					stream = append(stream, make([]byte, n)...)
					if !s.Fill(seq.Of(at, n), stream[at:]) {
						t.Fatal("Fill failed")
					}
				}
				s.Acked(seq.Num(len(stream)))
				sink := &logSink{}
				pool := NewPool(0, 0)
				var r Receiver
				r.Init(ReceiverConfig{Framing: f, Layered: true, Pool: pool}, 0, sink)
				if err := offerAll(&r, stream, most); err != nil {
					t.Fatalf("%v: %v", f.label(), err)
				}
				for _, o := range sink.order {
					if !o {
						t.Fatalf("%v: an FPDU of a stream in order was placed as out of order",
							f.label())
					}
				}
				n := 0
				for id, u := range sink.placed {
					for i, b := range u {
						if b != src.payloadByte(uint64(id), i) {
							t.Fatalf("%v: byte %d of ULPDU %d is wrong", f.label(), i, id)
						}
					}
					n += len(u)
				}
				if n != 60000 || len(sink.delivered) != len(src.made) ||
					src.released != len(src.made) {
					t.Errorf("%v: %d bytes placed, %d of %d delivered, %d released", f.label(), n,
						len(sink.delivered), len(src.made), src.released)
				}
				if held, records := pool.InUse(); held != 0 || records != 0 {
					t.Errorf("%v: %d bytes and %d records left in the pool", f.label(), held,
						records)
				}
			}
		}
	}
}

// TestLayeredErrors checks that a socket, which cannot send again, makes the first wrong CRC an error, and
// that the end of the stream inside an FPDU is one.
//
//req:rfc5044-8-2
func TestLayeredErrors(t *testing.T) {
	f := Framing{CRC: true}
	good := encode(f, 0, []byte("a good ULPDU that is delivered"))
	bad := encode(f, 0, []byte("a bad one"))
	bad[3] ^= 1
	for _, c := range []struct {
		name  string
		b     []byte
		code  uint8
		count int
	}{
		{"wrong CRC", append(append([]byte{}, good...), bad...), ulpdu.CodeCRC, 1},
		{"cut", append(append([]byte{}, good...), good[:9]...), ulpdu.CodeClosed, 1},
		{"whole", append(append([]byte{}, good...), good...), 0, 2},
	} {
		sink := &logSink{}
		var r Receiver
		r.Init(ReceiverConfig{Framing: f, Layered: true, Pool: NewPool(0, 0)}, 0, sink)
		err := offerAll(&r, c.b, 4096)
		if err == nil {
			if e := r.Closed(seq.Num(len(c.b))); e != nil {
				err = e
			}
		}
		if (err == nil) != (c.code == 0) || err != nil && codeOf(err) != c.code ||
			len(sink.delivered) != c.count {
			t.Errorf("%s: %v, %d delivered; want code %d, %d delivered", c.name, err,
				len(sink.delivered), c.code, c.count)
		}
	}
}

// TestLayeredNotReady cuts two FPDUs at every place, and has a sink that is not ready for the second at first. Once the
// sink is ready, Advance places the kept bytes without a further byte.
func TestLayeredNotReady(t *testing.T) {
	f := Framing{CRC: true}
	first := encode(f, 0, []byte("a ULPDU that is delivered"))
	stream := append(first, encode(f, 0, []byte("a ULPDU that waits"))...)
	for first := 0; first <= len(stream); first++ {
		ready := false
		sink := &logSink{}
		sink.refuse = func(u []byte, inOrder bool) *ulpdu.Error {
			if !ready && string(u) == "a ULPDU that waits" {
				return ulpdu.NotReady
			}
			return nil
		}
		var r Receiver
		r.Init(ReceiverConfig{Framing: f, Layered: true, Pool: NewPool(0, 0)}, 0, sink)
		kept := 0
		for _, to := range []int{first, len(stream), len(stream)} {
			n, err := r.Offer(seq.Num(kept), [][]byte{stream[kept:to]}, to-kept, checksum.Known{})
			if err != nil {
				t.Fatal(err)
			}
			kept += n
			if err := r.Advance(seq.Num(kept)); err != nil {
				t.Fatal(err)
			}
		}
		if kept == len(stream) && !r.Waiting() {
			t.Errorf("%d bytes first: all are kept, and nothing waits", first)
		}
		ready = true
		if err := r.Advance(seq.Num(kept)); err != nil {
			t.Fatal(err)
		}
		if kept < len(stream) { // the socket's owner has the rest
			n, _ := r.Offer(seq.Num(kept), [][]byte{stream[kept:]}, len(stream)-kept,
				checksum.Known{})
			kept += n
			r.Advance(seq.Num(kept))
		}
		if len(sink.delivered) != 2 || r.Waiting() || kept != len(stream) {
			t.Errorf("%d bytes first: %d delivered, waiting %v, %d of %d bytes kept", first,
				len(sink.delivered), r.Waiting(), kept, len(stream))
		}
	}
}
