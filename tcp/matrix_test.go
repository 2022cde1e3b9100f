package tcp_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"xwarp/tcp"
	"xwarp/tcp/wire"
)

var update = flag.Bool("update", false, "write the golden files")

// states has a function for each state that brings a connection there. From SYN-RECEIVED on, RCV.NXT is then 1 or 2,
// and so is SND.NXT once p.out has sent the waiting segments.
var states = []struct {
	state tcp.State
	to    func(p *peer)
}{
	{tcp.Closed, func(p *peer) {}},
	{tcp.SynSent, func(p *peer) { p.c.Connect(p.now) }},
	{tcp.SynReceived, func(p *peer) { p.c.Connect(p.now); p.out(); p.in(fS, 0, 0, 0) }},
	{tcp.Established, func(p *peer) { p.open() }},
	{tcp.FinWait1, func(p *peer) { p.open(); p.c.Shutdown(p.now) }},
	{tcp.FinWait2, func(p *peer) { p.open(); p.c.Shutdown(p.now); p.out(); p.in(fA, 1, 2, 0) }},
	{tcp.CloseWait, func(p *peer) { p.open(); p.in(fFA, 1, 1, 0) }},
	{tcp.Closing, func(p *peer) { p.open(); p.c.Shutdown(p.now); p.out(); p.in(fFA, 1, 1, 0) }},
	{tcp.LastAck, func(p *peer) { p.open(); p.in(fFA, 1, 1, 0); p.c.Shutdown(p.now) }},
	{tcp.TimeWait, func(p *peer) { p.open(); p.c.Shutdown(p.now); p.out(); p.in(fFA, 1, 2, 0) }},
}

// TestSegmentsInEveryState tries every kind of segment in every state (RFC 9293, 3.10.7). It compares the offer, the
// answer and the state afterwards with a golden file, whose lines were checked against the RFC.
//
//req:rfc9293-3.10.7.3-1 rfc9293-3.10.7.4-1 rfc9293-3.10.7.4-2 rfc9293-3.10.7.4-3 rfc9293-3.10.7.4-4
//req:rfc9293-3.10.7.4-7 rfc9293-3.10.7.4-8
func TestSegmentsInEveryState(t *testing.T) {
	var b strings.Builder
	for _, st := range states {
		for _, f := range []wire.Flags{0, fS, fSA, fS | fF, fA, fF, fFA, fR, fRA} {
			for _, at := range []string{"left", "edge", "inside", "right", "outside"} {
				for _, n := range []int{0, 10} {
					acks := []string{"-"}
					if f&wire.ACK != 0 {
						acks = []string{"new", "old", "beyond"}
					}
					for _, ack := range acks {
						b.WriteString(matrixLine(t, st.state, st.to, f, at, n, ack))
					}
				}
			}
		}
	}
	golden(t, "matrix.txt", b.String())
}

func matrixLine(t *testing.T, state tcp.State, to func(p *peer), f wire.Flags, at string, n int,
	ack string) string {
	p := newPeer(t, tcp.Config{RcvSpace: 1000, QuickAcks: -1, NoTimestamps: true, NoWScale: true})
	to(p)
	p.out()
	p.state(state)
	nxt := p.c.RcvNxt().Diff(irs)
	if state <= tcp.SynSent {
		nxt = 1
	}
	where := map[string]int{"left": nxt - 50, "edge": nxt, "inside": nxt + 500, "right": nxt + 1000,
		"outside": nxt + 5000}[at]
	if f&wire.SYN != 0 && state == tcp.SynReceived && at == "left" {
		where = 0 // a repetition of the peer's SYN
	}
	num := map[string]int{"-": 0, "new": p.c.SndNxt().Diff(iss), "old": p.c.SndNxt().Diff(iss) - 1,
		"beyond": p.c.SndNxt().Diff(iss) + 1}[ack]
	o := p.in(f, where, num, n)
	offered := 0
	for _, r := range o.R[:o.N] {
		offered += r.Len()
	}
	after := p.c.State().String()
	if p.c.State() == state {
		after = "="
	}
	return fmt.Sprintf("%-12v %-4v %-7s +%-2d ack %-6s: offers %-2d sends %-28q %s\n", state, f, at,
		n, ack, offered, p.out(), after)
}

// golden compares got with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); d != "" {
		t.Errorf("%s (-want +got):\n%s", name, d)
	}
}
