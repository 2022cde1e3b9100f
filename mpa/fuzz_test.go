package mpa

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"xwarp/engine/testkit/havoc"
	"xwarp/mpa/ulpdu"
	"xwarp/tcp/checksum"
	"xwarp/tcp/seq"
)

// fuzzPool is used again and again, so that its slabs are not made for each input.
var fuzzPool = NewPool(0, 0)

// FuzzFPDU reads bytes as a stream in order: nothing panics, each placed ULPDU fits into the input, and with a CRC and
// no markers it has the bytes of the input.
//
//req:rfc5044-5.2-1
func FuzzFPDU(f *testing.F) {
	for _, v := range vectors {
		if v.off == 0 {
			f.Add(unhex(f, v.fpdu), v.markers, true)
			f.Add(unhex(f, v.fpdu), v.markers, false)
		}
	}
	havoc.Fuzz(f, func(t *testing.T, b []byte, markers, crc bool) {
		fr := Framing{Markers: markers, CRC: crc}
		if crc && len(b)%2 == 0 { // a CRC is hardly ever found by chance
			b = bytes.Clone(b)
			repairCRCs(fr, b)
		}
		sink := &logSink{}
		var r Receiver
		r.Init(ReceiverConfig{Framing: fr, Pool: fuzzPool, Strict: true}, 3, sink)
		kept, _ := r.Offer(3, [][]byte{b}, len(b), checksum.Known{})
		r.Advance(seq.Num(3).Add(kept))
		off := 0
		for _, u := range sink.placed {
			want := encode(fr, off, u)
			if off+len(want) > len(b) {
				t.Fatalf("an FPDU at %d of %d bytes, beyond the end at %d", off, len(want), len(b))
			}
			if crc && !markers { // the pad may be anything, so only the ULPDU is compared
				if !bytes.Equal(b[off+2:off+2+len(u)], u) {
					t.Fatalf("FPDU at %d: wrong bytes", off)
				}
			}
			off += len(want)
		}
		r.Release()
		if held, records := r.cfg.Pool.InUse(); held != 0 || records != 0 {
			t.Fatalf("%d bytes, %d records left", held, records)
		}
	})
}

// repairCRCs makes the CRCs right of the FPDUs along the length chain.
func repairCRCs(f Framing, b []byte) {
	for off := 0; ; {
		length := off
		if f.Markers && off%MarkerInterval == 0 {
			length += MarkerLen
		}
		if length+lengthLen > len(b) {
			return
		}
		n := int(binary.BigEndian.Uint16(b[length:]))
		end := off + f.Size(uint64(off), n)
		if n > MaxULPDU || end > len(b) {
			return
		}
		binary.LittleEndian.PutUint32(b[end-crcLen:],
			crc32.Checksum(b[off:end-crcLen], castagnoli))
		off = end
	}
}

// FuzzReceiver offers segments of a correct stream, each from three bytes of input: offset, length, and whether it is
// damaged. Nothing wrong may be placed, and kept bytes must stay kept.
func FuzzReceiver(f *testing.F) {
	f.Add([]byte{0, 10, 0, 20, 10, 0, 10, 10, 0}, uint8(3))
	f.Add([]byte{0, 255, 0}, uint8(1))
	f.Add([]byte{100, 10, 0, 90, 10, 0, 80, 10, 1, 80, 10, 0, 0, 80, 0}, uint8(3))
	f.Add([]byte{5, 3, 0, 1, 4, 0, 0, 1, 0, 8, 90, 0}, uint8(2))
	havoc.Fuzz(f, func(t *testing.T, ops []byte, mode uint8) {
		fr := Framing{Markers: mode&1 != 0, CRC: mode&2 != 0}
		var stream []byte
		sizes := [][]int{{300, 1000, 2, 0, 45, 900, 18, 700}, {1430, 1430, 1430}}[mode>>2&1]
		want := map[string]bool{}
		for k, n := range sizes {
			u := bytes.Repeat([]byte{byte(k + 1)}, n)
			want[string(u)] = true
			stream = append(stream, encode(fr, len(stream), u)...)
		}
		sink := &logSink{}
		if mode&8 != 0 {
			sink.refuse = func(u []byte, inOrder bool) *ulpdu.Error {
				if !inOrder && len(u)%3 == 0 {
					return &ulpdu.Error{Layer: ulpdu.DDP}
				}
				return nil
			}
		}
		cfg := ReceiverConfig{Framing: fr, Pool: fuzzPool, AnyMarkerOrigin: mode&16 != 0}
		if mode&32 != 0 {
			cfg.ReassemblyLimit, cfg.RecordLimit = 2048, 2
		}
		var r Receiver
		start := seq.Num(0).Add(-len(stream) / 2)
		r.Init(cfg, start, sink)
		have := make([]bool, len(stream))
		edge := 0
		offer := func(p, q int, damage bool) *ulpdu.Error {
			for p < q && have[p] {
				p++
			}
			for k := p; k < q; k++ {
				if have[k] {
					q = k
				}
			}
			if p == q {
				return nil
			}
			b := bytes.Clone(stream[p:q])
			if damage {
				b[len(b)/2] ^= 0x21
			}
			mid := len(b) / 3
			kept, err := r.Offer(start.Add(p), [][]byte{b[:mid], b[mid:]}, len(b), checksum.Known{})
			if kept < 0 || kept > len(b) {
				t.Fatalf("kept %d of %d", kept, len(b))
			}
			for k := range kept {
				have[p+k] = true
			}
			for edge < len(have) && have[edge] {
				edge++
			}
			if e := r.Advance(start.Add(edge)); err == nil {
				err = e
			}
			return err
		}
		damaged := false
		for ; len(ops) >= 3; ops = ops[3:] {
			p := min(len(stream), int(ops[0])*len(stream)/256)
			q := min(len(stream), p+1+int(ops[1])*int(ops[1])/16)
			damage := ops[2]&1 != 0 && fr.CRC
			damaged = damaged || damage
			if err := offer(p, q, damage); err != nil && !damaged {
				t.Fatal(err)
			}
		}
		for range 2000 { // in the end TCP sends everything again
			if edge == len(stream) || r.err != nil {
				break
			}
			offer(edge, min(edge+700, len(stream)), false)
		}
		for _, u := range sink.placed {
			if fr.CRC && !want[string(u)] {
				t.Fatalf("placed %d bytes that were not sent", len(u))
			}
		}
		if !damaged && (r.err != nil || edge != len(stream) || len(sink.delivered) != len(sizes)) {
			t.Fatalf("edge %d of %d, %d of %d delivered, %v %+v", edge, len(stream),
				len(sink.delivered), len(sizes), r.err, r.Stats())
		}
		r.Release()
		if held, records := cfg.Pool.InUse(); held != 0 || records != 0 {
			t.Fatalf("%d bytes, %d records left", held, records)
		}
	})
}
