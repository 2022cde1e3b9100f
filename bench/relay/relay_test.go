package relay

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"xwarp/bench/relay/impair"
	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/tcp/tick"
)

// start returns a topology of two hosts with a running relay between them. Both end with the test.
func start(t testing.TB, o topo.Options, cfg Config) (*topo.Net, *Relay) {
	t.Helper()
	needs.NetNS(t)
	o.Relay, o.OffloadsA, o.OffloadsB = true, topo.NoOffloads, topo.NoOffloads
	n, err := topo.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	r, err := Start(n.Relay, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return n, r
}

// transfer sends data from A to B over kernel TCP and returns the bytes that arrived. during, when not nil, is called
// after the first half.
func transfer(t testing.TB, n *topo.Net, v6 bool, data []byte, during func()) []byte {
	t.Helper()
	to := n.B.Addr4.Addr()
	if v6 {
		to = n.B.Addr6.Addr()
	}
	var l net.Listener
	if err := n.B.Do(func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(to, 0).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	type result struct {
		data []byte
		err  error
	}
	got := make(chan result, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			got <- result{nil, err}
			return
		}
		defer c.Close()
		b, err := io.ReadAll(c)
		got <- result{b, err}
	}()
	err := n.A.Do(func() error {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(time.Minute))
		half := len(data) / 2
		if _, err = c.Write(data[:half]); err != nil {
			return err
		}
		if during != nil {
			during()
		}
		_, err = c.Write(data[half:])
		return err
	})
	if err != nil {
		t.Fatalf("sending: %v", err)
	}
	r := <-got
	if r.err != nil {
		t.Fatalf("receiving: %v", r.err)
	}
	return r.data
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	r.Read(b)
	return b
}

func TestKernelTCP(t *testing.T) {
	both := func(c impair.Config) Config { return Config{AB: c, BA: c, Seed: 7} }
	for _, c := range []struct {
		name string
		o    topo.Options
		v6   bool
		size int
		cfg  Config
		saw  func(ab, ba Counters) bool // reports whether the impairment took place
	}{
		{"nothing", topo.Options{}, false, 16 << 20, Config{}, func(ab, ba Counters) bool {
			return ab.Out >= 16<<20/1500 && ab.In == ab.Out && ba.Out > 0
		}},
		{"IPv6, two queues", topo.Options{Queues: 2}, true, 4 << 20, Config{},
			func(ab, ba Counters) bool {
				return ab.Untouched > 0 // neighbour discovery
			}},
		{"jumbo", topo.Options{MTU: 9000}, false, 16 << 20, Config{}, func(ab, ba Counters) bool {
			return ab.OutBytes/ab.Out > 5000
		}},
		{"loss", topo.Options{}, false, 4 << 20, both(impair.Config{Loss: 0.01}),
			func(ab, ba Counters) bool {
				return ab.Lost > 0
			}},
		{"reorder", topo.Options{}, false, 4 << 20, both(impair.Config{Reorder: 0.05}),
			func(ab, ba Counters) bool {
				return ab.Reordered > 10
			}},
		{"duplicate", topo.Options{}, false, 4 << 20, both(impair.Config{Duplicate: 0.05}),
			func(ab, ba Counters) bool {
				return ab.Duplicated > 10
			}},
		{"corrupt", topo.Options{}, false, 4 << 20,
			both(impair.Config{Corrupt: 0.01, CorruptMode: impair.CorruptRaw}),
			func(ab, ba Counters) bool { return ab.Corrupted > 5 }},
		{"resegment", topo.Options{}, false, 4 << 20, both(impair.Config{Resegment: true}),
			func(ab, ba Counters) bool {
				return ab.RecutOut > 1000 && ab.BadChecksum == 0
			}},
		{"resegment jumbo IPv6", topo.Options{MTU: 9000}, true, 16 << 20,
			both(impair.Config{Resegment: true}),
			func(ab, ba Counters) bool { return ab.RecutOut > 1000 && ab.BadChecksum == 0 }},
		{"delay and rate", topo.Options{}, false, 2 << 20,
			both(impair.Config{Delay: tick.Millisecond, Rate: 200e6, Queue: 64 << 10}),
			func(ab, ba Counters) bool {
				return ab.MaxQueue > 10<<10 && ab.MaxQueue <= 64<<10
			}},
		{"everything", topo.Options{}, true, 2 << 20,
			both(impair.Config{Loss: 0.005, Reorder: 0.02, Duplicate: 0.01, Corrupt: 0.002,
				CorruptMode: impair.CorruptRaw, Resegment: true}), func(ab, ba Counters) bool {
				return ab.Lost > 0 && ab.RecutOut > 0
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, r := start(t, c.o, c.cfg)
			data := randomBytes(c.size)
			began := time.Now()
			got := transfer(t, n, c.v6, data, nil)
			t.Logf("%d MiB in %v", c.size>>20, time.Since(began).Round(time.Millisecond))
			ab, ba := r.Counters(AToB), r.Counters(BToA)
			if !bytes.Equal(got, data) {
				t.Errorf("%d bytes were sent, %d arrived, not the same", len(data), len(got))
			}
			if ab.Truncated+ab.Unfinished+ab.SendErrors+ba.Truncated+ba.Unfinished+
				ba.SendErrors > 0 || !c.saw(ab, ba) {
				t.Errorf("counters:\n%+v\n%+v", ab, ba)
			}
		})
	}
}

// TestSealedCorruptionArrives checks that a corruption that keeps the TCP checksum right reaches the application.
func TestSealedCorruptionArrives(t *testing.T) {
	for name, mode := range map[string]impair.CorruptMode{"sealed": impair.CorruptSealed,
		"pair": impair.CorruptPair} {
		n, r := start(t, topo.Options{}, Config{AB: impair.Config{Corrupt: 0.01, CorruptMode: mode},
			Seed: 5})
		data := randomBytes(4 << 20)
		got := transfer(t, n, false, data, nil)
		if len(got) != len(data) {
			t.Fatalf("%s: %d bytes arrived of %d", name, len(got), len(data))
		}
		wrong := 0
		for i := range data {
			if got[i] != data[i] {
				wrong++
			}
		}
		each := 1
		if mode == impair.CorruptPair {
			each = 2
		}
		// The receiver discards the bytes of a needless retransmission, so there may be fewer wrong bytes.
		if c := r.Counters(AToB); wrong == 0 || wrong > each*int(c.Corrupted) {
			t.Errorf("%s: %d wrong bytes, %d segments damaged", name, wrong, c.Corrupted)
		}
	}
}

// TestMTUDrop checks that a transfer completes although the path's MTU falls in its middle.
func TestMTUDrop(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		n, r := start(t, topo.Options{MTU: 9000}, Config{})
		data := randomBytes(8 << 20)
		got := transfer(t, n, v6, data, func() {
			err := r.Set(AToB, impair.Config{MTU: 1500, MTUReply: true, Reply4: topo.RelayAddr4,
				Reply6: topo.RelayAddr6})
			if err != nil {
				t.Error(err)
			}
		})
		c := r.Counters(AToB)
		if !bytes.Equal(got, data) || c.TooBig == 0 || c.Replies == 0 {
			t.Errorf("IPv6 %v: %d bytes of %d arrived; %+v", v6, len(got), len(data), c)
		}
	}
}

// TestPing checks that a ping passes a good path, and that ARP passes a path that loses every IP packet.
func TestPing(t *testing.T) {
	n, r := start(t, topo.Options{}, Config{})
	if err := ping(n, time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := r.Set(AToB, impair.Config{Loss: 1}); err != nil {
		t.Fatal(err)
	}
	if err := ping(n, 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("ping over a dead path: %v", err)
	}
	before := r.Counters(BToA).Untouched
	neighbours, err := n.A.Netlink().NeighList(n.A.Link.Index, 2)
	if err != nil || len(neighbours) != 1 {
		t.Fatalf("A's ARP table is %v (%v)", neighbours, err)
	}
	if err := n.A.Netlink().NeighDel(&neighbours[0]); err != nil {
		t.Fatal(err)
	}
	ping(n, 50*time.Millisecond)
	if after := r.Counters(BToA).Untouched; after == before {
		t.Error("no ARP reply passed the lossy relay")
	}
	if c := r.Counters(AToB); c.Lost < 2 {
		t.Errorf("the lossy relay lost %d packets", c.Lost)
	}
}

// ping sends one ICMP echo from A to B and waits for the answer.
func ping(n *topo.Net, wait time.Duration) error {
	return n.A.Do(func() error {
		c, err := net.Dial("ip4:icmp", n.B.Addr4.Addr().String())
		if err != nil {
			return err
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(wait))
		echo := []byte{8, 0, 0, 0, 0x12, 0x34, 0, 1}
		echo[2], echo[3] = 0xe5, 0xca // the complement of 0x0800 + 0x1234 + 1
		if _, err := c.Write(echo); err != nil {
			return err
		}
		b := make([]byte, 64)
		k, _, err := c.(*net.IPConn).ReadFrom(b) // unlike Read, without the IPv4 header
		if err != nil {
			return err
		}
		if k != len(echo) || b[0] != 0 || !bytes.Equal(b[4:k], echo[4:]) {
			return errors.New("the echo reply is not the reply to this echo")
		}
		return nil
	})
}

func TestStartErrors(t *testing.T) {
	if _, err := Start(nil, Config{}); err == nil ||
		!strings.Contains(err.Error(), "Options.Relay") {
		t.Errorf("without a middle: %v", err)
	}
	n, r := start(t, topo.Options{}, Config{})
	if _, err := Start(n.Relay, Config{BA: impair.Config{Loss: 2}}); err == nil ||
		!strings.Contains(err.Error(), "loss") {
		t.Errorf("loss of 2: %v", err)
	}
	if err := r.Set(AToB, impair.Config{Reorder: -1}); err == nil {
		t.Error("a negative fraction was taken")
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
