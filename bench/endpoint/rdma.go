package endpoint

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/ddp"
	"xwarp/engine/daemon/client"
	"xwarp/engine/esp"
	"xwarp/engine/host/xfrm"
	"xwarp/engine/ipsec"
	"xwarp/engine/sockets"
	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
)

// rdma is an end that speaks RDMA: over AF_XDP, over kernel sockets or through a daemon.
type rdma struct {
	spec  *Spec
	place *Place
	dev   verbs.Device
	pd    verbs.PD
	cq    verbs.CQ
	mr    verbs.MR
	small verbs.MR // receives short Sends: credits, and announcements of Writes
	mem   []byte
	qps   []verbs.QP
	peer  Ready
	l     verbs.Listener

	consumer atomic.Pointer[consumer]
	quit     context.Context
	stop     context.CancelFunc
	running  sync.WaitGroup
}

// consumer does the work of a test. pollOnce is called again and again, over AF_XDP on the worker's thread, otherwise
// on a goroutine. It reports whether it did anything.
type consumer interface{ pollOnce() bool }

func (e *rdma) setUp() (r Ready, err error) {
	if err := e.openDevice(); err != nil {
		return r, err
	}
	s := e.spec
	if e.cq, err = e.dev.CreateCQ(min(1<<20, s.Conns*(2*s.Depth+2*e.receives()+64))); err != nil {
		return r, err
	}
	first, err := e.endpoint(2*s.Depth, e.receives())
	if err != nil {
		return r, err
	}
	e.pd, e.qps = first.PD, []verbs.QP{first.QP}
	n, stride := s.buffers()
	if e.mr, err = first.Buffer(n*stride*s.Conns,
		verbs.LocalWrite|verbs.RemoteRead|verbs.RemoteWrite); err != nil {
		return r, err
	}
	if e.small, err = first.Buffer(64, verbs.LocalWrite); err != nil {
		return r, err
	}
	e.mem = e.mr.Bytes()
	for i := range e.mem {
		e.mem[i] = byte(i >> 3)
	}
	if s.Mode == Latency {
		e.mem[s.Size-1] = 0
	}
	for range s.Conns - 1 {
		next, err := e.endpoint(2*s.Depth, e.receives())
		if err != nil {
			return r, err
		}
		e.qps = append(e.qps, next.QP)
	}
	return Ready{STag: uint32(e.mr.STag()), Bytes: len(e.mem), Transport: e.dev.Transport().Name},
		nil
}

// endpoint creates an endpoint with room for the given numbers of work requests and 16 more of each. All endpoints of
// an end share one completion queue and the protection domain of the first.
func (e *rdma) endpoint(sends, recvs int) (*verbs.Endpoint, error) {
	return verbs.NewEndpoint(e.dev, verbs.EndpointConfig{QPConfig: verbs.QPConfig{PD: e.pd,
		SendCQ: e.cq, RecvCQ: e.cq, SendDepth: sends + 16, RecvDepth: recvs + 16, MaxSGE: 1}})
}

// receives is how many receives an end keeps posted on each connection.
func (e *rdma) receives() int {
	switch {
	case e.spec.Verb == Send && e.spec.Mode == Bandwidth, e.spec.Verb == WriteSend:
		return min(receives, max(16, 4*MaxMemory/e.spec.Conns/1024))
	}
	return 16
}

func (e *rdma) openDevice() (err error) {
	opt := sockets.Options{Window: e.spec.Window, NoPack: e.spec.NoPack}
	e.quit, e.stop = context.WithCancel(context.Background())
	switch e.spec.Peer {
	case Layered:
		e.dev, err = verbs.Opened(sockets.Open(e.kernel(opt)))
	case Daemon:
		e.dev, err = verbs.Opened(client.OpenConfig(client.Config{
			Path: e.place.Socket, Device: e.place.Interface,
		}))
	default:
		cfg := xdp.Config{
			Options: opt, Interface: e.place.Interface, Queues: e.place.Queues,
			Consumer: func(int) bool { return e.pollOnce() },
		}
		cfg.TCP.StretchAck = e.spec.StretchAck
		cfg.Transmit, cfg.RingMode, cfg.Idle = e.spec.Transmit, e.spec.Ring, e.spec.Idle
		cfg.XDPMode = e.spec.XDPMode
		if e.spec.ESP > 0 {
			cfg.IPsec = Protect("xwarp bench", e.place.Local, e.place.Remote, e.spec.ESP)
		}
		if e.place.CPU >= 0 {
			cfg.CPUs = []int{e.place.CPU}
		}
		e.dev, err = verbs.Opened(xdp.Open(cfg))
	}
	return err
}

// conn returns the configuration of a connection with the given private data.
func (e *rdma) conn(private []byte) verbs.DialConfig {
	m := verbs.MPAWith(!e.spec.NoMarkers, !e.spec.NoCRC)
	return verbs.DialConfig{PrivateData: private, MPA: &m}
}

// kernel returns a configuration whose sockets have the spec's congestion control. Accepted sockets inherit it from
// their listener.
func (e *rdma) kernel(opt sockets.Options) sockets.Config {
	control := func(_, _ string, c syscall.RawConn) error { return c.Control(e.spec.setCongestion) }
	return sockets.Config{
		Options: opt,
		Dial: func(ctx context.Context, _, remote netip.AddrPort) (net.Conn, error) {
			d := net.Dialer{Control: control}
			return d.DialContext(ctx, "tcp", remote.String())
		},
		Listen: func(at netip.AddrPort) (net.Listener, error) {
			l := net.ListenConfig{Control: control}
			return l.Listen(context.Background(), "tcp", at.String())
		},
	}
}

func (e *rdma) pollOnce() bool {
	c := e.consumer.Load()
	if c == nil {
		return false
	}
	return (*c).pollOnce() || !e.spec.Sleep // the result true keeps the worker from sleeping
}

// consume makes the worker call c from now on. Without a worker in this process, a goroutine calls c until close.
func (e *rdma) consume(c consumer) {
	e.consumer.Store(&c)
	if e.spec.Peer == XDP {
		return
	}
	e.running.Go(func() {
		for {
			select {
			case <-e.quit.Done():
				return
			default:
			}
			if !c.pollOnce() {
				e.idle()
			}
		}
	})
}

// idle sleeps for a moment after a turn without work. It cannot wait for a completion instead: a message of a ping-pong
// by Writes shows in memory only. With a daemon it sleeps in the kernel for about 60 µs, because a sleep of the Go
// runtime may last a millisecond. With sockets it uses the runtime, whose poller also wakes the goroutines of sockets.
func (e *rdma) idle() {
	if e.spec.Peer != Daemon {
		time.Sleep(time.Microsecond)
		return
	}
	unix.Nanosleep(&unix.Timespec{Nsec: 1000}, nil)
}

// completions takes completions for a mover, as CQ.Poll does. Over kernel sockets it waits for one: a polling goroutine
// would take the processor from the device's goroutine.
func (e *rdma) completions(dst []verbs.Completion) (int, error) {
	if e.spec.Peer != Layered {
		return e.cq.Poll(dst)
	}
	n, err := e.cq.Wait(e.quit, dst)
	if e.quit.Err() != nil {
		err = nil
	}
	return n, err
}

func (e *rdma) close() {
	if e.quit != nil {
		e.stop()
	}
	e.running.Wait()
	if e.l != nil {
		e.l.Close()
	}
	if e.dev != nil {
		e.dev.Close()
	}
}

// listen opens the listener of a server and returns its address.
func (e *rdma) listen() (netip.AddrPort, error) {
	var err error
	e.l, err = e.dev.Listen(netip.AddrPortFrom(e.place.Local, e.place.Port),
		verbs.ListenConfig{Backlog: min(MaxConns, max(128, e.spec.Conns)), MPA: e.conn(nil).MPA})
	if err != nil {
		return netip.AddrPort{}, err
	}
	return e.l.Addr(), nil
}

// parallel is the maximum number of connections that are made at the same time.
const parallel = 32

// connect makes all connections of a client; the first bytes of the private data tell the server which one it is.
func (e *rdma) connect(ctx context.Context) error {
	return each(e.spec.Conns, func(i int) error {
		return e.dev.Dial(ctx, e.peer.Addr, e.qps[i],
			e.conn(binary.BigEndian.AppendUint32(nil, uint32(i))))
	})
}

// acceptConnections accepts as many connections as the spec has, each on the queue pair that its private data names.
func (e *rdma) acceptConnections(ctx context.Context) error {
	return each(e.spec.Conns, func(int) error {
		r, err := e.l.Accept(ctx)
		if err != nil {
			return err
		}
		if len(r.PrivateData) < 4 {
			return errors.New("unexpected connection from outside the measurement")
		}
		i := binary.BigEndian.Uint32(r.PrivateData)
		if i >= uint32(len(e.qps)) {
			return fmt.Errorf("connection %d of %d", i, len(e.qps))
		}
		return r.Accept(ctx, e.qps[i], nil)
	})
}

// each runs f for 0 to n-1, several at a time, and returns all errors joined. A goroutine stops after its first error.
func each(n int, f func(i int) error) error {
	var wg sync.WaitGroup
	var next atomic.Int64
	errs := make([]error, min(parallel, n))
	for w := range errs {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && errs[w] == nil; i = next.Add(1) - 1 {
				errs[w] = f(int(i))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// account adds the counters of all connections to r.
func (e *rdma) account(r *Result) {
	for _, q := range e.qps {
		i, err := q.Info()
		if err != nil {
			continue
		}
		r.HeldHigh = max(r.HeldHigh, i.MPA.HeldHighWater)
		r.Frames += i.Counters.SegmentsOut
		r.FrameBytes += i.Counters.PayloadOut
		if i.TCP != nil {
			r.PureAcks += i.TCP.PureAcks
			r.Retransmits += i.TCP.Loss.Counters.Retransmitted
		}
	}
}

func (e *rdma) target() ddp.STag { return ddp.STag(e.peer.STag) }

// Protect returns the IPsec configuration of an end, with keys that the other end derives from the same secret. bits is
// the length of each AES key.
func Protect(secret string, local, remote netip.Addr, bits int) *xdp.IPsecConfig {
	sa := func(from, to netip.Addr) *xfrm.SA {
		key := sha256.Sum256(fmt.Appendf(nil, "%s from %s to %s", secret, from, to))
		spi := uint32(0x1001)
		if to.Less(from) {
			spi = 0x2001
		}
		keymat := append(key[:bits/8:bits/8], "salt"...)
		return &xfrm.SA{SA: esp.SA{SPI: spi, ESN: true, Keymat: keymat}, Src: from, Dst: to}
	}
	return &xdp.IPsecConfig{Rules: []ipsec.Rule{{Mode: esp.Transport}},
		Follow: xfrm.Static(&xfrm.Snapshot{Outbound: []*xfrm.SA{sa(local, remote)},
			Inbound: []*xfrm.SA{sa(remote, local)}})}
}
