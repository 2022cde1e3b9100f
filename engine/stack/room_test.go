package stack

import (
	"testing"

	"xwarp/ring"
	"xwarp/tcp"
)

// roomyPort is a port whose Info says that frames have up to room bytes.
type roomyPort struct {
	ring.Port
	room int
}

func (p *roomyPort) Info() ring.Info {
	i := p.Port.Info()
	i.TxRoom = p.room
	return i
}

// TestRoomOfAccepted: the segments of a connection fit the frames of the port, at either end.
func TestRoomOfAccepted(t *testing.T) {
	const room = 3360
	var accepted *Endpoint
	from, to := &checked{t: t}, &checked{t: t}
	x := newPairWith(t, false, tcp.Config{}, [2]Upper{from, to},
		func(_ int, c *Config) { c.MTU = 9000 })
	for i := range x.s {
		x.s[i].port, x.s[i].room = &roomyPort{x.s[i].port, room}, room
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
