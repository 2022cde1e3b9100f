package stress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The relay's sockets have small buffers, so that an end that does not read is noticed soon.
var (
	listener = net.ListenConfig{Control: Narrow}
	dialer   = net.Dialer{Control: Narrow}
)

// Narrow gives a socket small buffers, which a few segments fill.
func Narrow(_, _ string, c syscall.RawConn) (err error) {
	e := c.Control(func(fd uintptr) {
		err = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, 16<<10),
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 48<<10),
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG, 1000))
	})
	return errors.Join(e, err)
}

// harm is the damage that a relay does to one direction of a connection.
type harm int

const (
	noHarm harm = iota
	cut         // FIN in both directions
	reset       // RST in both directions
	halve       // FIN in this direction; the other one continues
	flip        // one bit of a byte is flipped
	insert      // bytes are inserted
	leave       // bytes are left out
	stall       // the relay stops reading, without a FIN
	pause       // the relay does not read for a while
	harms
)

func (h harm) String() string {
	return [harms]string{"no harm", "cut", "reset", "halve", "flip", "insert", "leave out",
		"stall", "pause"}[h]
}

// damage is a harm and the place where a relay does it.
type damage struct {
	harm
	back bool // the harm is done in the direction from the listener
	at   int  // number of preceding bytes in that direction
}

// corrupts reports whether bytes are changed, which only the CRC detects.
func (d damage) corrupts() bool { return d.harm == flip || d.harm == insert || d.harm == leave }

func (d damage) String() string {
	if d.harm == noHarm {
		return d.harm.String()
	}
	return fmt.Sprintf("%v at byte %d, back: %v", d.harm, d.at, d.back)
}

// relay forwards the bytes of each accepted connection to another address, in pieces of random length.
type relay struct {
	ln   net.Listener
	to   string
	d    damage
	seed uint64

	group  sync.WaitGroup
	closed chan struct{} // closed by close
	mu     sync.Mutex
	open   []net.Conn
}

func newRelay(to netip.AddrPort, d damage, seed uint64) (*relay, error) {
	ln, err := listener.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &relay{ln: ln, to: to.String(), d: d, seed: seed, closed: make(chan struct{})}
	r.group.Go(r.accept)
	return r, nil
}

func (r *relay) addr() netip.AddrPort { return r.ln.Addr().(*net.TCPAddr).AddrPort() }

func (r *relay) accept() {
	for n := uint64(0); ; n++ { // Dial may retry without markers
		in, err := r.ln.Accept()
		if err != nil {
			return
		}
		out, err := dialer.Dial("tcp", r.to)
		if err != nil {
			in.Close()
			continue
		}
		if !r.keep(in, out) {
			return
		}
		for i, way := range [][2]net.Conn{{in, out}, {out, in}} {
			d := damage{}
			if r.d.back == (i == 1) {
				d = r.d
			}
			rnd := rand.New(rand.NewPCG(r.seed, 2*n+uint64(i)))
			r.group.Go(func() { r.pass(way[1].(*net.TCPConn), way[0].(*net.TCPConn), d, rnd) })
		}
	}
}

// keep registers sockets to be closed by close. After close it closes them and returns false.
func (r *relay) keep(socks ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.closed:
		for _, s := range socks {
			s.Close()
		}
		return false
	default:
		r.open = append(r.open, socks...)
		return true
	}
}

// close ends the relay and its connections, and waits.
func (r *relay) close() {
	r.ln.Close()
	r.mu.Lock()
	close(r.closed)
	for _, s := range r.open {
		s.Close()
	}
	r.mu.Unlock()
	r.group.Wait()
}

// pass forwards the bytes of one direction until it ends, and does the harm.
func (r *relay) pass(to, from *net.TCPConn, d damage, rnd *rand.Rand) {
	defer to.CloseWrite()
	b := make([]byte, 16+rnd.IntN(1<<rnd.IntN(17)))
	for done := 0; ; {
		most := 1 + rnd.IntN(len(b))
		if left := d.at - done; d.harm != noHarm && left > 0 {
			most = min(most, left)
		} else if d.harm != noHarm {
			if !r.goesOn(d.harm) {
				return
			}
			if !hurt(to, from, d.harm, rnd) {
				io.Copy(io.Discard, from)
				return
			}
			d.harm = noHarm
		}
		n, err := from.Read(b[:most])
		if n > 0 {
			done += n
			if _, err := to.Write(b[:n]); err != nil {
				from.Close()
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// goesOn waits if h requires it. It returns false if the relay was closed.
func (r *relay) goesOn(h harm) bool {
	var after <-chan time.Time
	switch h {
	case pause:
		after = time.After(restless / 4)
	case stall:
	default:
		return true
	}
	select {
	case <-after:
		return true
	case <-r.closed:
		return false
	}
}

// hurt does the harm h between two bytes. It returns false if nothing may follow in this direction.
func hurt(to, from *net.TCPConn, h harm, rnd *rand.Rand) bool {
	switch h {
	case reset:
		to.SetLinger(0)
		from.SetLinger(0)
		fallthrough
	case cut:
		to.Close()
		from.Close()
		return false
	case halve:
		to.CloseWrite()
		return false
	case flip:
		var one [1]byte
		if n, _ := io.ReadFull(from, one[:]); n == 1 {
			one[0] ^= 1 << rnd.IntN(8)
			to.Write(one[:])
		}
	case insert:
		b := make([]byte, 1+rnd.IntN(100))
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		to.Write(b)
	case leave:
		io.CopyN(io.Discard, from, int64(1+rnd.IntN(100)))
	}
	return true
}
