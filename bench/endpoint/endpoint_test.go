package endpoint

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestSpecComplete(t *testing.T) {
	ok := []Spec{
		{Peer: XDP, Mode: Bandwidth}, {Peer: XDP, Mode: Latency, Verb: Read},
		{Peer: TCP, Mode: Bandwidth, Size: 1}, {Peer: Layered, ServerPeer: XDP, Mode: Bandwidth},
		{Peer: XDP, Mode: Bandwidth, Bidirectional: true, Conns: MaxConns},
	}
	for _, s := range ok {
		if err := s.Complete(); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
		if s.Size == 0 || s.Depth == 0 || s.Iterations == 0 && s.Duration == 0 ||
			s.Moderation > max(1, s.Depth/2) {
			t.Errorf("incomplete: %+v", s)
		}
	}
	bad := []Spec{
		{Peer: XDP, Mode: Bandwidth, Size: MaxSize + 1}, {Peer: XDP, Mode: Bandwidth,
			Conns: MaxConns + 1},
		{Peer: XDP, Mode: Bandwidth, Depth: -1}, {Peer: XDP, Mode: Latency, Conns: 2},
		{Peer: TCP, Mode: Bandwidth, Bidirectional: true},
		{Peer: TCP, ServerPeer: XDP, Mode: Bandwidth},
		{Peer: XDP, ServerPeer: TCP, Mode: Bandwidth},
	}
	for _, s := range bad {
		if err := s.Complete(); !errors.Is(err, ErrSpec) {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

// TestWindow checks that only messages between the end of the warm-up and the end of the duration count, and that the
// measurement then ends.
func TestWindow(t *testing.T) {
	s := Spec{Size: 100, Warmup: time.Second, Duration: 2 * time.Second}
	w := window{spec: &s}
	start := time.Unix(1000, 0)
	w.openAt(start)
	for ms := range 5000 {
		now := start.Add(time.Duration(ms) * time.Millisecond)
		if more := w.tick(now, uint64(ms)); more != (ms < 3000) {
			t.Fatalf("after %d ms: go on %v", ms, more)
		}
	}
	r := w.result()
	if r.Messages != 2000 || r.Bytes != 200_000 || r.Seconds != 2 {
		t.Errorf("%+v", r)
	}
	if r.Peak < r.Rate() || r.Peak > 1.01*r.Rate() {
		t.Errorf("peak %v of a steady %v", r.Peak, r.Rate())
	}
}

func TestWorkID(t *testing.T) {
	for _, conn := range []int{0, 1, MaxConns - 1} {
		for _, kind := range []int{kindData, kindRecv, kindOther} {
			for _, count := range []int{0, 1, MaxDepth/2 - 1} {
				if c, k, n := workOf(workID(conn, kind, count)); c != conn || k != kind ||
					n != count {
					t.Errorf("%d %d %d comes back as %d %d %d", conn, kind, count, c, k, n)
				}
			}
		}
	}
}

// TestLayered runs whole measurements over loopback, which need no privileges. The two ends are given different sizes
// and versions, which the report must show.
func TestLayered(t *testing.T) {
	for _, tc := range []Spec{
		{Peer: Layered, Mode: Bandwidth, Verb: Write, Size: 1000, Iterations: 500, Depth: 16,
			Moderation: 5},
		{Peer: Layered, Mode: Bandwidth, Verb: Send, Size: 3000, Iterations: 2000, Depth: 64,
			Conns: 3},
		{Peer: Layered, Mode: Bandwidth, Verb: Read, Size: 5000, Iterations: 200, Depth: 4},
		{Peer: Layered, Mode: Latency, Verb: Send, Size: 64, Iterations: 50},
		{Peer: TCP, Mode: Bandwidth, Size: 4096, Iterations: 100},
	} {
		c, s := net.Pipe()
		want := tc
		want.Size += 1
		place := Place{Local: loopback, Remote: loopback, CPU: -1}
		served := make(chan error, 1)
		go func() {
			_, err := Serve(t.Context(), s, place, LocalEnv("other"), &want)
			served <- err
		}()
		rep, err := Run(t.Context(), c, place, LocalEnv("test"), tc, 0)
		if err := errors.Join(err, <-served); err != nil {
			t.Fatalf("%s %s: %v", tc.Peer, tc.Verb, err)
		}
		if n := uint64(tc.Iterations * max(1, tc.Conns)); rep.Main().Messages != n {
			t.Errorf("%s %s: %d messages, want %d", tc.Peer, tc.Verb, rep.Main().Messages, n)
		}
		diff := strings.Join(rep.Differences, "\n")
		if !strings.Contains(diff, "-s:") || !strings.Contains(diff, "version:") {
			t.Errorf("the ends differ in size and version, and say: %q", diff)
		}
	}
}

// TestCrowd checks a bandwidth test over many plain sockets, and that such a test refuses a number of iterations.
func TestCrowd(t *testing.T) {
	c, s := net.Pipe()
	place := Place{Local: loopback, Remote: loopback, CPU: -1}
	spec := Spec{Peer: TCP, Mode: Bandwidth, Size: 4096, Conns: 40,
		Duration: 100 * time.Millisecond}
	served := make(chan error, 1)
	go func() {
		_, err := Serve(t.Context(), s, place, LocalEnv("test"), nil)
		served <- err
	}()
	rep, err := Run(t.Context(), c, place, LocalEnv("test"), spec, 0)
	if err := errors.Join(err, <-served); err != nil {
		t.Fatal(err)
	}
	if r := rep.Main(); r.Messages == 0 || r.Bytes != r.Messages*4096 || r.Seconds < 0.1 {
		t.Errorf("%+v", r)
	}
	spec.Iterations = 5
	c, s = net.Pipe()
	go Serve(t.Context(), s, place, LocalEnv("test"), nil)
	if _, err := Run(t.Context(), c, place, LocalEnv("test"), spec, 0); err == nil {
		t.Error("a number of messages is accepted for many plain sockets")
	}
}

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// TestNoServer checks that a client reports an error if its peer hangs up, refuses the measurement, has another schema,
// or is not a measuring server.
func TestNoServer(t *testing.T) {
	for name, talk := range map[string]func(c net.Conn){
		"hangs up":     func(c net.Conn) { c.Close() },
		"other schema": func(c net.Conn) { c.Write([]byte(`{"schema":99,"env":{},"ready":{}}`)) },
		"says no":      func(c net.Conn) { c.Write([]byte(`{"error":"busy"}`)) },
		"other talk":   func(c net.Conn) { c.Write([]byte("HTTP/1.1 400 Bad Request\r\n")) },
	} {
		c, s := net.Pipe()
		go func() {
			b := make([]byte, 1<<16)
			s.Read(b)
			talk(s)
		}()
		_, err := Run(t.Context(), c, Place{Local: loopback, CPU: -1}, LocalEnv("test"),
			Spec{Peer: Layered, Mode: Bandwidth}, 0)
		if err == nil {
			t.Errorf("%s: no error", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
		s.Close()
	}
}
