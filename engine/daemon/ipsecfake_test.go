package daemon_test

import (
	"crypto/rand"
	"encoding/gob"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/engine/esp"
	"xwarp/engine/host/xfrm"
)

// fakeXFRM replaces the XFRM of the kernels of two hosts, and their IKE daemons. xwarp daemons reach it over a Unix
// socket, so they can run in other processes and be killed. Like an xfrm.Follower, it never gives an SA to a second
// process.
type fakeXFRM struct {
	path  string
	hosts [2]netip.Addr

	mu      sync.Mutex
	conns   map[*fakeConn]bool
	sas     []*fakeSA
	spi     uint32
	silent  bool // the IKE daemons do not respond
	expired int  // soft limits that processes reported, and notifications with SAs that another process has
	asked   int

	exchange sync.Mutex // held during rekey
}

// fakeSA is an SA as sent over the socket. Its key is a []byte, because an esp.Keymat hides its content when it is
// formatted.
type fakeSA struct {
	SPI      uint32
	From, To netip.Addr
	Key      []byte
	taken    [2]*fakeConn // the process that has the SA on the sender's host, and on the receiver's
}

type fakeConn struct {
	enc   *gob.Encoder
	host  netip.Addr
	taken uint64
	no    uint64

	refused map[uint32]bool
}

type fakeState struct {
	Out, In        []*fakeSA
	Host, Peer     netip.Addr
	Taken, Refused uint64
}

type fakeRequest struct {
	Kind string
	SPI  uint32
}

// settle is the time between two steps of a rekey. So a receiver has a new SA before its peer sends with it. A real IKE
// exchange takes longer.
const settle = 100 * time.Millisecond

func newFakeXFRM(t *testing.T, a, b netip.Addr) *fakeXFRM {
	t.Helper()
	f := &fakeXFRM{path: filepath.Join(t.TempDir(), "xfrm"), hosts: [2]netip.Addr{a, b},
		conns: map[*fakeConn]bool{}, spi: 0x1000}
	ln, err := net.Listen("unix", f.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go f.serve(c)
		}
	}()
	return f
}

func (f *fakeXFRM) serve(c net.Conn) {
	defer c.Close()
	dec := gob.NewDecoder(c)
	conn := &fakeConn{enc: gob.NewEncoder(c), refused: map[uint32]bool{}}
	if dec.Decode(&conn.host) != nil {
		return
	}
	f.mu.Lock()
	f.conns[conn] = true
	f.notify(conn)
	f.mu.Unlock()
	for {
		var r fakeRequest
		if dec.Decode(&r) != nil {
			break
		}
		f.mu.Lock()
		f.asked++
		if r.Kind == "expire" {
			f.expired++
		}
		silent := f.silent
		f.mu.Unlock()
		if !silent {
			f.answerOnce()
		}
	}
	f.mu.Lock()
	delete(f.conns, conn)
	f.mu.Unlock()
}

// notify sends a process its SAs, and counts those that another process has as refused. It is called with mu held.
func (f *fakeXFRM) notify(c *fakeConn) {
	s := fakeState{Host: c.host, Peer: f.hosts[0]}
	if c.host == f.hosts[0] {
		s.Peer = f.hosts[1]
	}
	used := false
	for _, sa := range f.sas {
		for i, end := range []netip.Addr{sa.From, sa.To} {
			if end != c.host {
				continue
			}
			if sa.taken[i] == nil {
				sa.taken[i] = c
				c.taken++
			}
			if sa.taken[i] == otherProcess {
				continue
			}
			if sa.taken[i] != c {
				if !c.refused[sa.SPI] {
					c.refused[sa.SPI], used = true, true
					c.no++
				}
				continue
			}
			if i == 0 {
				s.Out = append(s.Out, sa)
			} else {
				s.In = append(s.In, sa)
			}
		}
	}
	s.Taken, s.Refused = c.taken, c.no
	c.enc.Encode(&s)
	if used && !f.silent { // like a Follower, requests new SAs in place of those that another process has
		f.expired++
		go f.answerOnce()
	}
}

func (f *fakeXFRM) notifyAll() {
	for c := range f.conns {
		f.notify(c)
	}
}

// answerOnce installs new SAs as the answer to a request. Requests during that get no exchange of their own.
func (f *fakeXFRM) answerOnce() {
	if f.exchange.TryLock() {
		f.install()
		f.exchange.Unlock()
	}
}

// rekey installs a new pair of SAs, first at their receivers, and then deletes all earlier ones.
func (f *fakeXFRM) rekey() {
	f.exchange.Lock()
	defer f.exchange.Unlock()
	f.install()
}

func (f *fakeXFRM) install() {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.sas
	var fresh []*fakeSA
	for i := range f.hosts {
		f.spi++
		key := make([]byte, 20)
		rand.Read(key)
		fresh = append(fresh, &fakeSA{SPI: f.spi, From: f.hosts[i], To: f.hosts[1-i], Key: key})
	}
	receivers := slices.Clone(fresh)
	for i, sa := range receivers {
		receivers[i] = &fakeSA{SPI: sa.SPI, To: sa.To, Key: sa.Key}
		receivers[i].From = sa.From
		receivers[i].taken[0] = otherProcess // hidden from its sender
	}
	f.sas = append(slices.Clone(old), receivers...)
	f.notifyAll()
	f.pause()
	for i, sa := range fresh {
		sa.taken[1] = receivers[i].taken[1]
	}
	f.sas = append(slices.Clone(old), fresh...)
	f.notifyAll()
	f.pause()
	f.sas = fresh
	f.notifyAll()
}

var otherProcess = &fakeConn{}

func (f *fakeXFRM) pause() {
	f.mu.Unlock()
	time.Sleep(settle)
	f.mu.Lock()
}

// deleteAll deletes all SAs. The IKE daemons answer no request until answer is called.
func (f *fakeXFRM) deleteAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.silent, f.sas = true, nil
	f.notifyAll()
}

func (f *fakeXFRM) answer() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.silent = false
}

// keys returns the current keys by SPI.
func (f *fakeXFRM) keys() map[uint32][]byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := map[uint32][]byte{}
	for _, sa := range f.sas {
		m[sa.SPI] = sa.Key
	}
	return m
}

// followFake returns a replacement of xfrm.Follow for the daemon of a host.
func followFake(path string, host netip.Addr) func(xfrm.Options) (xfrm.Source, error) {
	return func(o xfrm.Options) (xfrm.Source, error) {
		c, err := net.Dial("unix", path)
		if err != nil {
			return nil, err
		}
		s := &fakeSource{c: c, enc: gob.NewEncoder(c), known: map[uint32]*xfrm.SA{}}
		if err := s.enc.Encode(host); err != nil {
			return nil, err
		}
		dec := gob.NewDecoder(c)
		if err := s.take(dec, o.Notify); err != nil {
			return nil, err
		}
		go func() {
			for s.take(dec, o.Notify) == nil {
			}
		}()
		return s, nil
	}
}

// fakeSource is a daemon's end of a fakeXFRM.
type fakeSource struct {
	c     net.Conn
	known map[uint32]*xfrm.SA

	mu  sync.Mutex
	enc *gob.Encoder
	n   xfrm.Counters
}

func (s *fakeSource) take(dec *gob.Decoder, notify func(*xfrm.Snapshot)) error {
	var f fakeState
	if err := dec.Decode(&f); err != nil {
		return err
	}
	s.mu.Lock()
	s.n = xfrm.Counters{Taken: f.Taken, Refused: f.Refused}
	s.mu.Unlock()
	all := netip.PrefixFrom(f.Peer, f.Peer.BitLen())
	state := &xfrm.Snapshot{Policies: []*xfrm.Policy{{Out: true,
		Local: netip.PrefixFrom(f.Host, f.Host.BitLen()), Remote: all}}}
	for _, list := range []struct {
		from []*fakeSA
		to   *[]*xfrm.SA
	}{{f.Out, &state.Outbound}, {f.In, &state.Inbound}} {
		for _, sa := range list.from {
			if s.known[sa.SPI] == nil {
				s.known[sa.SPI] = &xfrm.SA{SA: esp.SA{SPI: sa.SPI, Keymat: sa.Key, ESN: true},
					Src: sa.From, Dst: sa.To, Window: 1024}
			}
			*list.to = append(*list.to, s.known[sa.SPI])
		}
	}
	notify(state)
	return nil
}

func (s *fakeSource) request(kind string, spi uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.enc.Encode(fakeRequest{kind, spi})
}

func (s *fakeSource) Acquire(*xfrm.Policy) error { return s.request("acquire", 0) }
func (s *fakeSource) Expire(sa *xfrm.SA, _ bool) error {
	return s.request("expire", sa.SPI)
}
func (s *fakeSource) Account(*xfrm.SA, uint64, uint64) error { return unix.ESRCH }
func (s *fakeSource) Close()                                 { s.c.Close() }

func (s *fakeSource) Counters() (xfrm.Counters, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n, nil
}
