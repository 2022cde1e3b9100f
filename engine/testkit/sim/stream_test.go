package sim

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"

	"xwarp/engine/bytestream"
	"xwarp/engine/stack"
	"xwarp/tcp"
	"xwarp/tcp/tick"
)

const streamPort = 9000

// byteAt returns the byte of a stream at an offset. It depends on the offset, so that a test detects lost, repeated and
// misplaced bytes.
func byteAt(key uint64, off int) byte {
	return byte(mix(key^uint64(off>>3)) >> (off & 7 * 8))
}

// streamEnd is one end of a byte stream. It writes total bytes, half-closes, and reads the peer's data.
type streamEnd struct {
	c       *streamConn
	name    string
	host    *Host
	life    uint64
	peer    *streamEnd
	s       *bytestream.Stream
	rnd     *rand.Rand
	key     uint64
	total   int
	wrote   int
	read    int
	shut    bool
	eof     bool
	ended   bool
	err     error
	abortAt int // bytes read after which the end resets the connection; negative: never
	resting bool
	buf     []byte
}

type streamConfig struct {
	a, b       bytestream.Config
	tcpA, tcpB tcp.Config
	totalA     int
	totalB     int
	abortA     int // see streamEnd.abortAt
	rest       tick.Duration
	restOneIn  int // mean number of reads between pauses of a reader; 0: no pauses
	port       uint16
	v6         int
	maxRead    int
}

type streamConn struct {
	s     *scenario
	cfg   streamConfig
	a, b  *streamEnd
	no    int
	after bool // dialled after the last reboot
	lost  bool // it is not dialled any more: a host rebooted, or its feature is left out
}

func newStream(s *scenario, cfg streamConfig, a, b *Host, no int) *streamConn {
	c := &streamConn{s: s, cfg: cfg, no: no}
	c.a = &streamEnd{c: c, name: fmt.Sprintf("a%d", no), host: a, life: a.incarnations,
		total:   cfg.totalA,
		abortAt: cfg.abortA}
	c.b = &streamEnd{c: c, name: fmt.Sprintf("b%d", no), host: b, life: b.incarnations,
		total:   cfg.totalB,
		abortAt: -1}
	c.a.peer, c.b.peer = c.b, c.a
	for i, e := range []*streamEnd{c.a, c.b} {
		e.rnd = rand.New(rand.NewPCG(s.seed, uint64(100+2*no+i)))
		e.key = e.rnd.Uint64()
		e.buf = make([]byte, cfg.maxRead)
	}
	return c
}

// newOn creates the Stream of e on its host.
func (e *streamEnd) newOn(cfg bytestream.Config) *bytestream.Stream {
	e.s = bytestream.New(cfg, func(s *bytestream.Stream) {
		if e.alive() {
			e.host.Kick(s.Schedule)
		}
	})
	e.host.Each(e.pump)
	return e.s
}

func (e *streamEnd) alive() bool { return e.host.incarnations == e.life }

// dial starts the active open from a, with the local port of its configuration.
func (c *streamConn) dial() error {
	c.a.life = c.a.host.incarnations
	t := tcp.Tuple{Local: c.a.host.Addr(c.cfg.v6), Remote: c.b.host.Addr(c.cfg.v6),
		LocalPort: c.cfg.port, RemotePort: streamPort}
	_, err := c.a.host.Stack().Connect(t, &c.cfg.tcpA, c.a.newOn(c.cfg.a), c.s.world.Now())
	c.a.host.Wake()
	return err
}

// listenStreams accepts connections at h. The peer's port selects their streamConn.
func listenStreams(s *scenario, h *Host, v6, backlog int, cookies tcp.CookieMode,
	find func(port uint16) *streamConn) {
	var last tcp.Config
	if c := find(0); c != nil {
		last = c.cfg.tcpB
	}
	lc := stack.ListenConfig{Conn: last, Backlog: backlog, Cookies: cookies,
		Accept: func(t *tcp.Tuple) (stack.Upper, error) {
			c := find(t.RemotePort)
			if c == nil || c.b.s != nil {
				return nil, errors.New("nobody waits for this one")
			}
			c.b.life = h.incarnations
			return c.b.newOn(c.cfg.b), nil
		}}
	if _, err := h.Stack().Listen(h.Addr(v6), streamPort, &lc, s.world.Now()); err != nil {
		panic(err)
	}
}

func (e *streamEnd) fail(format string, args ...any) {
	e.c.s.world.Fail(fmt.Errorf("stream end %s: %s", e.name, fmt.Sprintf(format, args...)))
}

// pump writes and reads as much as possible.
func (e *streamEnd) pump(now tick.Time) {
	if e.ended || !e.alive() {
		return
	}
	e.write()
	e.receive(now)
	if e.s.Poll()&bytestream.Ended != 0 && (e.eof || e.err != nil) {
		e.ended = true
		if e.err == nil {
			e.err = e.s.Err()
		}
	}
}

func (e *streamEnd) write() {
	for e.wrote < e.total {
		n := min(1+e.rnd.IntN(5000), e.total-e.wrote)
		b := make([]byte, n)
		for i := range b {
			b[i] = byteAt(e.key, e.wrote+i)
		}
		n, err := e.s.Write(b)
		e.wrote += n
		if err != nil || n == 0 {
			return
		}
	}
	if !e.shut && e.s.Poll()&bytestream.Connected != 0 {
		e.shut = true
		e.s.Shutdown(true, false)
	}
}

func (e *streamEnd) receive(now tick.Time) {
	for !e.resting {
		n, err := e.s.Read(e.buf[:1+e.rnd.IntN(len(e.buf))])
		for i, b := range e.buf[:n] {
			if want := byteAt(e.peer.key, e.read+i); b != want {
				e.fail("byte %d is %#x, want %#x", e.read+i, b, want)
				return
			}
		}
		e.read += n
		switch {
		case err == io.EOF:
			if !e.eof && e.read != e.peer.total {
				e.fail("end of the stream after %d of %d bytes", e.read, e.peer.total)
			}
			e.eof = true
			return
		case errors.Is(err, bytestream.ErrAgain):
			return
		case err != nil:
			e.err = err
			return
		}
		if e.abortAt >= 0 && e.read >= e.abortAt {
			e.abortAt = -1
			ep := e.s.Endpoint()
			e.host.Kick(func() { ep.Abort(e.c.s.world.Now()) })
		}
		if k := e.c.cfg.restOneIn; k > 0 && e.rnd.IntN(k) == 0 {
			e.resting = true
			e.c.s.world.After(e.c.cfg.rest, func() { e.resting = false; e.host.Wake() })
		}
	}
}

func (c *streamConn) over() bool {
	return (c.a.ended || !c.a.alive() || c.lost && c.a.s == nil) && (c.b.ended || c.b.s == nil ||
		!c.b.alive())
}

func (c *streamConn) step() error {
	if c.a.alive() && c.b.alive() && c.a.s != nil && c.b.s != nil && !c.a.ended && !c.b.ended {
		return acked(c.a.s.Endpoint(), c.b.s.Endpoint())
	}
	return nil
}

// mayFail reports whether the faults of the scenario excuse an error of c.
func (c *streamConn) mayFail() bool {
	return c.cfg.abortA >= 0 || c.s.severe || c.s.rebooted && !c.after
}

func (c *streamConn) verdict() error {
	if c.lost && c.a.s == nil {
		return nil // it was not dialled
	}
	for _, e := range []*streamEnd{c.a, c.b} {
		if !e.alive() || e.s == nil {
			continue
		}
		if e.err != nil && !c.mayFail() {
			return fmt.Errorf("stream end %s: %w, which no fault explains",
				e.name, e.err)
		}
		if e.err == nil && e.read != e.peer.total {
			return fmt.Errorf("stream end %s: %d of %d bytes", e.name, e.read, e.peer.total)
		}
	}
	if !c.mayFail() && c.b.s == nil {
		return fmt.Errorf("stream end %s was never accepted", c.b.name)
	}
	return nil
}
