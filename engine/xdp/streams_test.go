package xdp_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/engine/xdp"
	"xwarp/ring"
	"xwarp/ring/gso"
)

// pump writes data and sends FIN, while it reads until the peer's FIN. It returns the bytes that it read.
func pump(c interface {
	net.Conn
	CloseWrite() error
}, data []byte) ([]byte, error) {
	c.SetDeadline(time.Now().Add(30 * time.Second))
	wrote := make(chan error, 1)
	go func() {
		_, err := c.Write(data)
		if err == nil {
			err = c.CloseWrite()
		}
		wrote <- err
	}()
	got, err := io.ReadAll(c)
	if e := <-wrote; err == nil {
		err = e
	}
	return got, err
}

func randomBytes(n int, seed uint64) []byte {
	r := rand.NewChaCha8([32]byte{byte(seed)})
	b := make([]byte, n)
	r.Read(b)
	return b
}

// TestStreamWithKernel transfers data between the engine's TCP and the kernel's, in both roles, in both directions at
// once, and with half-close. With blocks, both ends send and receive super-frames: neither needs offloads changed.
func TestStreamWithKernel(t *testing.T) {
	needs.XSK(t)
	needs.NetNS(t)
	for _, tc := range []struct {
		name string
		mtu  int
		v6   bool
		peer topo.Offloads // zero: all offloads are on, as on a new veth
		way  xdp.Transmit
	}{{name: "ipv4", mtu: 1500}, {name: "ipv6", mtu: 1500, v6: true}, {name: "jumbo", mtu: 9000},
		{name: "blocks", mtu: 1500, way: xdp.TransmitAuto},
		{name: "blocks ipv6", mtu: 1500, v6: true, way: xdp.TransmitAuto},
		{name: "segments", mtu: 1500, peer: topo.Offloads{TSO: topo.Off}},
		{name: "segments with checksums", mtu: 1500, peer: topo.NoOffloads}} {
		t.Run(tc.name, func(t *testing.T) {
			tn, err := topo.New(topo.Options{MTU: tc.mtu, OffloadsB: tc.peer})
			if err != nil {
				t.Fatal(err)
			}
			defer tn.Close()
			var dev *xdp.Device
			var port ring.Port
			if err := tn.A.Do(func() (err error) {
				dev, err = xdp.Open(xdp.Config{Interface: tn.A.Link.Name, Transmit: tc.way,
					Wrap: func(_ int, p ring.Port) (ring.Port, error) {
						port = p
						return p, nil
					}})
				return err
			}); err != nil {
				t.Fatal(err)
			}
			defer dev.Close()
			ours, theirs := tn.A.Addr4.Addr(), tn.B.Addr4.Addr()
			if tc.v6 {
				ours, theirs = tn.A.Addr6.Addr(), tn.B.Addr6.Addr()
			}
			up, down := randomBytes(8<<20, 1), randomBytes(8<<20, 2)

			t.Run("connect", func(t *testing.T) {
				var ln net.Listener
				if err := tn.B.Do(func() (err error) {
					ln, err = net.ListenTCP("tcp",
						net.TCPAddrFromAddrPort(netip.AddrPortFrom(theirs, 0)))
					return err
				}); err != nil {
					t.Fatal(err)
				}
				defer ln.Close()
				peer := make(chan []byte, 1)
				go func() {
					c, err := ln.Accept()
					if err != nil {
						peer <- nil
						return
					}
					defer c.Close()
					got, _ := pump(c.(*net.TCPConn), down)
					peer <- got
				}()
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				defer cancel()
				c, err := dev.DialStream(ctx, ln.Addr().(*net.TCPAddr).AddrPort(),
					xdp.StreamConfig{})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				judge(t, c, up, down, peer)
			})
			t.Run("accept", func(t *testing.T) {
				ln, err := dev.ListenStream(netip.AddrPortFrom(ours, 9999), 0,
					xdp.StreamConfig{})
				if err != nil {
					t.Fatal(err)
				}
				defer ln.Close()
				peer := make(chan []byte, 1)
				go func() {
					var c net.Conn
					err := tn.B.Do(func() (err error) {
						c, err = net.DialTimeout("tcp", ln.Addr().String(), 5*time.Second)
						return err
					})
					if err != nil {
						peer <- nil
						return
					}
					defer c.Close()
					got, _ := pump(c.(*net.TCPConn), down)
					peer <- got
				}()
				select {
				case <-ln.Changed():
				case <-time.After(5 * time.Second):
					t.Fatal("no connection arrived")
				}
				s, err := ln.Accept()
				if err != nil {
					t.Fatal(err)
				}
				c := xdp.NewNetConn(s)
				defer c.Close()
				judge(t, c, up, down, peer)
			})
			if tc.way != xdp.TransmitAuto {
				return
			}
			dev.Close()
			sent, received := xdp.PortOf(port).(*gso.Port).GSOStats(), port.Stats()
			t.Logf("sent %+v, received %d bytes in %d packets", sent, received.RxBytes,
				received.RxPackets)
			if sent.Blocks == 0 || sent.Segments < 10*sent.Blocks || sent.Single > sent.Segments ||
				received.RxPackets > received.RxBytes/4000 {
				t.Error("too few whole blocks")
			}
		})
	}
}

func judge(t *testing.T, c *xdp.NetConn, up, down []byte, peer <-chan []byte) {
	t.Helper()
	got, err := pump(c, up)
	if err != nil {
		i, _ := c.Info()
		t.Fatalf("our end: %v after %d bytes; %+v", err, len(got), i)
	}
	if !bytes.Equal(got, down) {
		t.Errorf("our end read %d bytes, sha256 %x, want %d, %x", len(got), sha256.Sum256(got),
			len(down), sha256.Sum256(down))
	}
	select {
	case theirs := <-peer:
		if !bytes.Equal(theirs, up) {
			t.Errorf("the kernel read %d bytes, sha256 %x, want %d, %x", len(theirs),
				sha256.Sum256(theirs), len(up), sha256.Sum256(up))
		}
	case <-time.After(20 * time.Second):
		t.Error("the kernel's end did not finish")
	}
}

// TestStreamErrors: the errors of streams wrap the same errnos and values of Go as those of kernel sockets.
func TestStreamErrors(t *testing.T) {
	da, db, tn := xdpPair(t, topo.Options{}, nil)
	at := netip.AddrPortFrom(tn.B.Addr4.Addr(), 9)
	if _, err := da.DialStream(t.Context(), at, xdp.StreamConfig{}); !errors.Is(err,
		syscall.ECONNREFUSED) {
		t.Errorf("no listener: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	nobody := netip.AddrPortFrom(at.Addr().Next().Next(), 9)
	if _, err := da.DialStream(ctx, nobody, xdp.StreamConfig{}); !errors.Is(err,
		context.DeadlineExceeded) {
		t.Errorf("no host: %v", err)
	}
	ln, err := db.ListenStream(at, 0, xdp.StreamConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ln.Accept(); !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("Accept without a connection: %v", err)
	}
	dial := func() (c, peer *xdp.NetConn) {
		c, err := da.DialStream(t.Context(), at, xdp.StreamConfig{})
		if err != nil {
			t.Fatal(err)
		}
		<-ln.Changed()
		s, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return c, xdp.NewNetConn(s)
	}
	closed, _ := dial()
	closed.SetReadDeadline(time.Now())
	if _, err := closed.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Read after its deadline: %v", err)
	}
	closed.SetReadDeadline(time.Time{})
	read := make(chan error, 1)
	go func() {
		_, err := closed.Read(make([]byte, 1))
		read <- err
	}()
	if err := closed.Close(); err != nil {
		t.Error(err)
	}
	_, write := closed.Write([]byte("late"))
	for call, err := range map[string]error{"Read": <-read, "Write": write,
		"Close": closed.Close()} {
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s after Close: %v", call, err)
		}
	}
	reset, peer := dial()
	if err := peer.Abort(); err != nil {
		t.Error(err)
	}
	if _, err := reset.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("Read after the peer's RST: %v", err)
	}
	if err := ln.Close(); err != nil {
		t.Error(err)
	}
	if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: %v", err)
	}
	da.Close()
	if _, err := reset.Info(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Info after the device's Close: %v", err)
	}
}

// TestStreamCloseBeforeAnswer closes a stream whose SYN got no reply. The connection must end within the minute that
// eventually waits, not after the last retransmission of the SYN.
func TestStreamCloseBeforeAnswer(t *testing.T) {
	dev, _, tn := xdpPair(t, topo.Options{}, nil)
	nobody := tn.B.Addr4.Addr().Next().Next()
	s, err := dev.ConnectStream(netip.AddrPort{}, netip.AddrPortFrom(nobody, 9),
		xdp.StreamConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if !eventually(func() bool { return s.Poll()&xdp.Ended != 0 }) {
		t.Error("the connection still exists after Close")
	}
}
