package mpa

import (
	"errors"
	"io"
	"sync"
	"testing"
	"testing/iotest"
)

// TestLayered sends messages over a pipe, with writes and reads of any size.
//
//req:rfc5044-4.3-6
func TestLayered(t *testing.T) {
	for _, f := range framings {
		for _, pack := range []bool{false, true} {
			for _, reader := range []func(io.Reader) io.Reader{func(r io.Reader) io.Reader { return r }, iotest.OneByteReader, iotest.HalfReader, iotest.DataErrReader} {
				src := &messageSource{left: 60000, most: 7001}
				var s LayeredSender
				s.InitLayered(SenderConfig{f, pack}, 9000, 70000, src)
				pr, pw := io.Pipe()
				sent := make(chan error, 1)
				go func() {
					var mu sync.Mutex
					for {
						if more, err := s.WriteOnce(pw, &mu); !more || err != nil {
							pw.Close()
							sent <- err
							return
						}
					}
				}()
				sink := &logSink{}
				pool := NewHoldPool(0, 0)
				var r LayeredReceiver
				r.InitLayered(ReceiverConfig{Framing: f, Pool: pool}, 20000, sink)
				var mu sync.Mutex
				var err error
				for from := reader(pr); err == nil; {
					err = r.ReadOnce(from, &mu)
				}
				if err != io.EOF {
					t.Fatalf("%v: %v", f.label(), err)
				}
				if err := <-sent; err != nil {
					t.Fatal(err)
				}
				for _, o := range sink.order {
					if !o {
						t.Fatalf("%v: an FPDU of a stream in order was placed as out of order", f.label())
					}
				}
				n := 0
				for id, u := range sink.placed {
					for i, b := range u {
						if b != src.octet(uint64(id), i) {
							t.Fatalf("%v: octet %d of ULPDU %d is wrong", f.label(), i, id)
						}
					}
					n += len(u)
				}
				if n != 60000 || len(sink.delivered) != len(src.made) || src.released != len(src.made) {
					t.Errorf("%v: %d octets placed, %d of %d delivered, %d released", f.label(), n, len(sink.delivered), len(src.made), src.released)
				}
				if octets, records := pool.InUse(); octets != 0 || records != 0 {
					t.Errorf("%v: %d octets and %d records left in the pool", f.label(), octets, records)
				}
			}
		}
	}
}

// TestLayeredErrors checks that a socket, which cannot send again, makes the first wrong CRC an error, and that the end of the
// stream inside an FPDU is one.
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
		{"wrong CRC", append(append([]byte{}, good...), bad...), CodeCRC, 1},
		{"cut", append(append([]byte{}, good...), good[:9]...), CodeClosed, 1},
		{"whole", append(append([]byte{}, good...), good...), 0, 2},
	} {
		sink := &logSink{}
		var r LayeredReceiver
		r.InitLayered(ReceiverConfig{Framing: f, Pool: NewHoldPool(0, 0)}, 4096, sink)
		pr, pw := io.Pipe()
		go func() { pw.Write(c.b); pw.Close() }()
		var mu sync.Mutex
		var err error
		for err == nil {
			err = r.ReadOnce(pr, &mu)
		}
		pr.Close()
		if got := codeOf(err); got != c.code || len(sink.delivered) != c.count {
			t.Errorf("%s: %v, %d delivered; want code %d, %d delivered", c.name, err, len(sink.delivered), c.code, c.count)
		}
		if c.code == 0 && !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
