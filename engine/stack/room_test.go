package stack

import (
	"math/rand/v2"
	"testing"

	"xwarp/engine/esp"
	"xwarp/ring"
	"xwarp/ring/live"
	"xwarp/tcp"
	"xwarp/tcp/tick"
)

// roomyPort accepts frames of up to room bytes. Flush sets room to nextRoom.
type roomyPort struct {
	ring.Port
	room, nextRoom int
}

func (p *roomyPort) Flush() ring.State {
	p.room = p.nextRoom
	return p.Port.Flush()
}

func (p *roomyPort) Info() ring.Info {
	i := p.Port.Info()
	i.TxRoom = p.room
	return i
}

// TestSegmentsFollowRoom changes the sender's maximum frame length while segments are in flight. 2 % of them are lost,
// and all long ones right before the room shrinks. No frame may exceed the maximum; EMSS follows both ways, and the
// announced MSS stays.
func TestSegmentsFollowRoom(t *testing.T) {
	const long = 3 * ring.ChunkSize
	split := uint64(0)
	for _, c := range []struct {
		name        string
		v6          bool
		shape       *esp.Shape
		short, full int // EMSS
	}{
		{"IPv4", false, nil, 3294, 8948}, {"IPv6", true, nil, 3274, 8928},
		{"IPv4, ESP", false, &esp.Shape{}, 3258, 8914},
		{"IPv6, tunnel", true, &esp.Shape{Mode: esp.Tunnel, OuterV6: true}, 3198, 8854},
	} {
		t.Run(c.name, func(t *testing.T) {
			from, to := &checked{t: t}, &checked{t: t}
			to.idle = true
			upper := [2]Upper{from, to}
			jumbo := func(_ int, c *Config) { c.MTU = 9000 }
			var x *pair
			if c.shape != nil {
				x = newESPPair(t, c.v6, *c.shape, upper, true, jumbo).pair
			} else {
				x = newPairWith(t, c.v6, tcp.Config{RcvSpace: 1 << 20, RcvSpaceMax: 1 << 20}, upper,
					jumbo)
			}
			port := &roomyPort{x.s[0].port, long, long}
			x.s[0].port = port
			longest, lossy, random := 0, false, rand.New(rand.NewPCG(1, 2))
			x.lose = func(i int, frame []byte) bool {
				if i == 0 {
					longest = max(longest, len(frame))
				}
				return lossy && i == 0 && len(frame) > live.Room || random.IntN(50) == 0
			}
			for round := range 6 {
				port.nextRoom = []int{live.Room, long}[round%2]
				x.turn() // frames of this turn have the previous room
				emss, before := []int{c.short, c.full}[round%2], to.kept
				longest = 0
				for i := range 100 {
					lossy = i > 97
					x.turn()
				}
				lossy = false
				for range 1000 { // loss may have stopped the flow for some time
					if longest > port.room-100 && to.kept > before {
						break
					}
					x.now = x.now.Add(10 * tick.Millisecond)
					x.turn()
				}
				i := x.e.conn.Info(x.now)
				if i.SndMSS != emss || longest > port.room || longest < min(9000, port.room)-100 ||
					to.kept == before {
					t.Errorf("round %d: EMSS %d, want %d; frames of up to %d bytes, room for %d; "+
						"%d bytes kept", round, i.SndMSS, emss, longest, port.room, to.kept-before)
				}
				if i.PathMTU < 8800 || i.AdvMSS < 8800 {
					t.Errorf("path MTU %d, announced MSS %d", i.PathMTU, i.AdvMSS)
				}
			}
			split += x.e.conn.Counters().SplitRetransmit
		})
	}
	if split == 0 {
		t.Error("no segment was lost that was longer than the room")
	}
}

// TestRoomOfAccepted: a connection opened while the room is small has short segments at either end.
func TestRoomOfAccepted(t *testing.T) {
	var accepted *Endpoint
	from, to := &checked{t: t}, &checked{t: t}
	x := newPairWith(t, false, tcp.Config{}, [2]Upper{from, to},
		func(_ int, c *Config) { c.MTU = 9000 })
	for i := range x.s {
		x.s[i].port = &roomyPort{x.s[i].port, live.Room, live.Room}
	}
	listen := &ListenConfig{Accept: func(*tcp.Tuple) (Upper, error) { return &checked{t: t}, nil },
		Accepted: func(e *Endpoint) { accepted = e }}
	if _, err := x.s[1].Listen(pairAddr(false, 1), 8, listen, x.now); err != nil {
		t.Fatal(err)
	}
	tuple := x.e.tuple
	tuple.LocalPort, tuple.RemotePort = 1025, 8
	e, err := x.s[0].Connect(tuple, &tcp.Config{}, &checked{t: t}, x.now)
	if err != nil {
		t.Fatal(err)
	}
	for range 8 {
		x.turn()
	}
	if accepted == nil {
		t.Fatal("not accepted")
	}
	for _, e := range []*Endpoint{e, accepted} {
		if i := e.conn.Info(x.now); i.SndMSS != 3294 || i.AdvMSS != 8960 {
			t.Errorf("EMSS %d, announced MSS %d; want 3294, 8960", i.SndMSS, i.AdvMSS)
		}
	}
}
