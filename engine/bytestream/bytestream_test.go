package bytestream_test

import (
	"errors"
	"testing"

	"xwarp/engine/bytestream"
	"xwarp/engine/testkit/sim"
	"xwarp/tcp"
	"xwarp/tcp/ip"
	"xwarp/tcp/tick"
)

// TestRefused: nobody listens, so the first Read and Write say why; it is not the end of a stream.
func TestRefused(t *testing.T) {
	w := sim.NewWorld(1)
	a, b := host(t, w, 1), host(t, w, 2)
	s := bytestream.New(bytestream.Config{}, func(s *bytestream.Stream) { a.Kick(s.Kick) })
	tu := tcp.Tuple{Local: a.Addr(0), Remote: b.Addr(0), LocalPort: 1000, RemotePort: 2000}
	if _, err := a.Stack().Connect(tu, &tcp.Config{}, s, w.Now()); err != nil {
		t.Fatal(err)
	}
	a.Wake()
	if err := w.Run(w.Now().Add(tick.Second), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(make([]byte, 1)); !errors.Is(err, tcp.CauseRefused) {
		t.Errorf("Read: %v, want %v", err, tcp.CauseRefused)
	}
	if _, err := s.Write(make([]byte, 1)); !errors.Is(err, tcp.CauseRefused) {
		t.Errorf("Write: %v, want %v", err, tcp.CauseRefused)
	}
}

func host(t *testing.T, w *sim.World, n byte) *sim.Host {
	t.Helper()
	h, err := w.AddHost(sim.HostConfig{Name: string('A' + rune(n)),
		Addrs: []ip.Addr{ip.AddrFrom4([4]byte{10, 0, 0, n})}})
	if err != nil {
		t.Fatal(err)
	}
	return h
}
