package endpoint

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"

	"xwarp/tcp/ip"
	"xwarp/tcp/wire"
)

// frames is an end that sends and receives frames without any protocol, to measure AF_XDP alone. The frames look like
// segments of one TCP connection, so that the engine's XDP program steers them.
type frames struct {
	spec  *Spec
	place *Place
	open  func(e *frames) (framePort, error)
	port  framePort
	link  int // index of the interface
	frame []byte

	local, remote netip.AddrPort // source and destination in the frames that this end sends
}

// framePort sends and receives frames, by one of several implementations.
type framePort interface {
	// transmit passes up to most frames to the kernel and returns their number. With GSO it passes one block of frames.
	transmit(most int) int
	// receiveFrames takes the frames that have arrived and returns their number, without waiting.
	receiveFrames() int
	close()
}

const (
	portA = 7 // TCP port of the client in its frames; both ports are those of well-known test services
	portB = 9 // TCP port of the server in its frames
	// payloadAt is the offset of the TCP payload in a frame. The headers have the timestamps option, as the engine's.
	payloadAt = ip.EthernetLen + ip.Len4 + wire.HeaderLen + wire.TimestampsLen
)

func (e *frames) prepare(server bool) (r Ready, err error) {
	if e.spec.Mode == Connect || e.spec.Verb != Write || e.spec.Conns > 1 || e.spec.Bidirectional {
		return r, fmt.Errorf("%w: raw frames have no connections", ErrSpec)
	}
	here, there := uint16(portA), uint16(portB)
	if server {
		here, there = there, here
	}
	e.local = netip.AddrPortFrom(e.place.Local, here)
	e.remote = netip.AddrPortFrom(e.place.Remote, there)
	if e.frame, err = e.build(); err != nil {
		return r, err
	}
	if server && e.spec.Peer != Asavie { // the receiver for Raw and for GSO is AF_XDP by package ring
		e.open = openRing
	}
	nic, err := netlink.LinkByName(e.place.Interface)
	if err != nil {
		return r, err
	}
	e.link = nic.Attrs().Index
	e.port, err = e.open(e)
	return r, err
}

// build returns the frame that is sent over and over. It carries an IPv4 packet of spec.Size bytes.
func (e *frames) build() ([]byte, error) {
	dst, err := net.ParseMAC(e.place.RemoteMAC)
	if err != nil {
		return nil, fmt.Errorf("%w: frames need the peer's link-layer address: %v", ErrSpec, err)
	}
	src, err := net.ParseMAC(e.place.LocalMAC)
	if err != nil {
		return nil, err
	}
	if e.spec.Size < payloadAt-ip.EthernetLen {
		return nil, fmt.Errorf("%w: packets of %d bytes have no room for headers", ErrSpec,
			e.spec.Size)
	}
	link := ip.Ethernet{Dst: ip.MAC(dst), Src: ip.MAC(src), Type: ip.TypeIPv4}
	packet := ip.Header{Src: ip.AddrFrom4(e.local.Addr().As4()),
		Dst: ip.AddrFrom4(e.remote.Addr().As4()), Proto: ip.ProtoTCP, TTL: 64,
		PayloadLen: e.spec.Size - ip.Len4}
	segment := wire.Header{SrcPort: e.local.Port(), DstPort: e.remote.Port(), Flags: wire.ACK}
	segment.Opt.Present = wire.HasTS
	b := make([]byte, ip.EthernetLen+e.spec.Size)
	at := link.Put(b)
	segment.Put(b[at+packet.Put(b[at:]):])
	return b, nil
}

func (e *frames) close() {
	if e.port != nil {
		e.port.close()
	}
}

// burst is the number of frames passed to the kernel at a time.
const burst = 64

func (e *frames) runClient(ctx context.Context, _ Ready) (r *Result, err error) {
	err = OnProcessor(e.place.CPU, func() (err error) {
		if e.spec.Mode == Latency {
			r, err = e.ping(ctx)
			return err
		}
		from, n, spent := time.Now(), 0, processorTime()
		for until := from.Add(e.spec.Warmup + e.spec.Duration + settle); time.Now().Before(until) &&
			ctx.Err() == nil; {
			n += e.port.transmit(burst)
		}
		r = &Result{Messages: uint64(n), Bytes: uint64(n * e.spec.Size),
			Seconds: time.Since(from).Seconds(), CPU: processorTime() - spent}
		return nil
	})
	return r, err
}

// settle is how long a sender continues after the receiver has stopped counting.
const settle = 50 * time.Millisecond

// ping sends one frame and waits for it to come back, over and over. As in pingpong, one reading of the clock ends a
// round and begins the next one. A round is recorded while the next one is already under way.
func (e *frames) ping(ctx context.Context) (*Result, error) {
	r := newRounds(e.spec)
	sent := time.Now()
	r.openAt(sent)
	before, more := sent, true
	for n := 0; more; n++ {
		e.port.transmit(1)
		if n > 0 {
			more = r.addRound(before, sent)
		}
		for turn := 1; e.port.receiveFrames() == 0; turn++ {
			if turn%1024 == 0 && time.Since(sent) > time.Second {
				return nil, fmt.Errorf("frame %d was not returned", n)
			}
		}
		before, sent = sent, time.Now()
	}
	return r.result(), ctx.Err()
}

func (e *frames) runServer(ctx context.Context, _ Ready, stop <-chan struct{}) (*Result, error) {
	w, n := window{spec: e.spec}, uint64(0)
	OnProcessor(e.place.CPU, func() error {
		for {
			select {
			case <-stop:
				return nil
			case <-ctx.Done():
				return nil
			default:
			}
			k := e.port.receiveFrames()
			if k == 0 {
				continue
			}
			n += uint64(k)
			if e.spec.Mode == Latency {
				e.port.transmit(k)
				continue
			}
			now := time.Now()
			if w.began.IsZero() {
				w.openAt(now)
			}
			w.tick(now, n)
		}
	})
	if w.open && !w.over {
		w.finish(time.Now(), n)
	}
	r := w.result()
	r.Frames = r.Messages
	r.FrameBytes = r.Messages * uint64(len(e.frame)-payloadAt)
	return r, nil
}
