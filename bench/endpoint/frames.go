package endpoint

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"time"
)

// frames sends and receives frames without any protocol: what AF_XDP itself can do here. The frames look like segments
// of one TCP connection, so that the same XDP program steers them.
type frames struct {
	spec  *Spec
	place *Place
	open  func(e *frames) (framePort, error)
	port  framePort
	frame []byte
}

// framePort is AF_XDP by one library or another.
type framePort interface {
	send(most int) int // frames that were handed to the kernel
	receive() int      // frames that arrived
	close()
}

const (
	ethernet  = 14
	portA     = 7 // of the client's frames, 9 of the server's: echo and discard
	portB     = 9
	tcpHeader = 32 // with timestamps, as the engine's segments have
)

func (e *frames) prepare(server bool) (r Ready, err error) {
	if e.spec.Mode == Connect || e.spec.Verb != Write || e.spec.Conns > 1 || e.spec.Bidirectional {
		return r, fmt.Errorf("%w: frames know no connections", ErrSpec)
	}
	local, remote := uint16(portA), uint16(portB)
	if server {
		local, remote = remote, local
	}
	if e.frame, err = e.build(local, remote); err != nil {
		return r, err
	}
	if server && e.spec.Peer != Asavie { // what sends through the kernel has its receiver in package ring
		e.open = openRing
	}
	e.port, err = e.open(e)
	return r, err
}

// build makes the frame that is sent over and over: an IP packet of spec.Size octets.
func (e *frames) build(local, remote uint16) ([]byte, error) {
	dst, err := net.ParseMAC(e.place.RemoteMAC)
	if err != nil {
		return nil, fmt.Errorf("%w: frames need the peer's link-layer address: %v", ErrSpec, err)
	}
	src, err := net.ParseMAC(e.place.LocalMAC)
	if err != nil {
		return nil, err
	}
	if e.spec.Size < 20+tcpHeader {
		return nil, fmt.Errorf("%w: packets of %d octets have no room for headers", ErrSpec,
			e.spec.Size)
	}
	b := make([]byte, ethernet+e.spec.Size)
	copy(b, dst)
	copy(b[6:], src)
	binary.BigEndian.PutUint16(b[12:], 0x0800)
	h := b[ethernet:]
	h[0], h[8], h[9] = 0x45, 64, 6
	binary.BigEndian.PutUint16(h[2:], uint16(e.spec.Size))
	s, d := e.place.Local.As4(), e.place.Remote.As4()
	copy(h[12:], s[:])
	copy(h[16:], d[:])
	binary.BigEndian.PutUint16(h[20:], local)
	binary.BigEndian.PutUint16(h[22:], remote)
	h[32], h[33] = tcpHeader/4<<4, 0x10
	return b, nil
}

// flow returns the addresses of what arrives.
func (e *frames) flow() (local, remote netip.AddrPort) {
	at := func(a netip.Addr, b []byte) netip.AddrPort {
		return netip.AddrPortFrom(a, binary.BigEndian.Uint16(b))
	}
	h := e.frame[ethernet:]
	return at(e.place.Local, h[20:]), at(e.place.Remote, h[22:])
}

func (e *frames) close() {
	if e.port != nil {
		e.port.close()
	}
}

// burst is how many frames are handed over at a time.
const burst = 64

func (e *frames) run(ctx context.Context, _ Ready) (r *Result, err error) {
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		runtime.LockOSThread()
		pin(e.place.CPU)
		if e.spec.Mode == Latency {
			r, err = e.ping(ctx)
			return
		}
		from, n, spent := time.Now(), 0, processorTime()
		for until := from.Add(e.spec.Warmup + e.spec.Duration + settle); time.Now().Before(until) &&
			ctx.Err() == nil; {
			n += e.port.send(burst)
		}
		r = &Result{Messages: uint64(n), Octets: uint64(n * e.spec.Size),
			Seconds: time.Since(from).Seconds(), CPU: processorTime() - spent}
	}()
	<-finished
	return r, err
}

// settle is how much longer a sender goes on than the receiver counts.
const settle = 50 * time.Millisecond

// ping sends one frame and waits for it to come back, over and over. As in pingpong, one reading of the clock
// is the end of a round and the beginning of the next, which is under way while the last is recorded.
func (e *frames) ping(ctx context.Context) (*Result, error) {
	h := newHistogram(true)
	began := time.Now()
	n := 0
	var from time.Time
	var took time.Duration
	for sent := began; sent.Sub(began) < e.spec.Warmup+e.spec.Duration; {
		e.port.send(1)
		if !from.IsZero() {
			h.record(took)
			n++
		}
		for turn := 1; e.port.receive() == 0; turn++ {
			if turn%1024 == 0 && time.Since(sent) > time.Second {
				return nil, fmt.Errorf("frame %d did not come back", n)
			}
		}
		now := time.Now()
		took = now.Sub(sent)
		if from.IsZero() && sent.Sub(began) >= e.spec.Warmup {
			from = sent
		}
		sent = now
	}
	if !from.IsZero() {
		h.record(took)
		n++
	}
	return &Result{Messages: uint64(n), Octets: uint64(n * e.spec.Size),
		Seconds: time.Since(from).Seconds(), Latency: h.result()}, ctx.Err()
}

func (e *frames) serve(ctx context.Context, _ Ready, stop <-chan struct{}) (*Result, error) {
	r := make(chan *Result, 1)
	go func() {
		runtime.LockOSThread()
		pin(e.place.CPU)
		w := window{spec: e.spec}
		var n uint64
		for done := false; !done; {
			select {
			case <-stop:
				done = true
			case <-ctx.Done():
				done = true
			default:
			}
			k := e.port.receive()
			if k == 0 {
				continue
			}
			n += uint64(k)
			if e.spec.Mode == Latency {
				e.port.send(k)
				continue
			}
			now := time.Now()
			if w.began.IsZero() {
				w.start(now)
			}
			w.tick(now, n)
		}
		if w.open && !w.over {
			w.finish(time.Now(), n)
		}
		v := w.result()
		v.Frames = v.Messages
		v.FrameOctets = v.Messages * uint64(e.spec.Size-20-tcpHeader)
		r <- v
	}()
	return <-r, nil
}
