package sim

import (
	"errors"
	"testing"

	"xwarp/engine/bytestream"
	"xwarp/tcp"
	"xwarp/tcp/ip"
	"xwarp/tcp/tick"
)

// TestRefusedStream: without a listener, the first Read and Write return the refusal, not an end of stream.
func TestRefusedStream(t *testing.T) {
	w := NewWorld(1)
	a, b := newRefusedHost(t, w, 1), newRefusedHost(t, w, 2)
	s := bytestream.New(bytestream.Config{}, func(s *bytestream.Stream) { a.Kick(s.Schedule) })
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

func newRefusedHost(t *testing.T, w *World, n byte) *Host {
	t.Helper()
	h, err := w.AddHost(HostConfig{Name: string('A' + rune(n)),
		Addrs: []ip.Addr{ip.AddrFrom4([4]byte{10, 0, 0, n})}})
	if err != nil {
		t.Fatal(err)
	}
	return h
}
