package tcp_test

import (
	"reflect"
	"testing"

	"xwarp/tcp"
	"xwarp/tcp/tick"
)

// TestDefaultsTwice: a Config that has its defaults keeps them, whatever each number was: a Listener's
// connections get one that has been through it.
func TestDefaultsTwice(t *testing.T) {
	fields := reflect.TypeFor[tcp.Config]()
	for i := range fields.NumField() {
		for _, n := range []int64{-1 << 40, -1, 0, 1, 3, 100, 1500, 1 << 20, 1 << 40} {
			var c tcp.Config
			if f := reflect.ValueOf(&c).Elem().Field(i); f.CanInt() {
				f.SetInt(n)
			}
			c.Defaults()
			again := c
			again.Defaults()
			if !reflect.DeepEqual(c, again) {
				t.Errorf("%s %d: %+v, the second time %+v", fields.Field(i).Name, n, c, again)
			}
		}
	}
}

// TestPassiveDelayedAck: what a negative DelayedAck and QuickAcks say holds for connections of a Listener, too.
func TestPassiveDelayedAck(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  tcp.Config
		acks int // of 20 segments, each in a batch of its own
	}{
		{"never delayed", tcp.Config{DelayedAck: -1}, 20},
		{"none quick", tcp.Config{QuickAcks: -1}, 0},
	} {
		l, now := newListener(tcp.ListenConfig{Conn: c.cfg})
		tu := tuple(4000)
		var out tcp.Out
		l.Input(&tu, segment(fS, 1000, 0, mss(1460)), now, &out)
		s := segment(fA, 1001, out.Seq+1)
		var conn tcp.Conn
		if l.Input(&tu, s, now, &out) != tcp.Ready || !l.Accept(&tu, s, &conn, now) {
			t.Fatal("not accepted")
		}
		conn.Input(s, now)
		conn.Finish(now)
		acks := 0
		for range 20 {
			s.Len = 10
			o := conn.Input(s, now)
			conn.Keep(o.R[0])
			conn.Finish(now)
			for conn.Poll(now, nil, &out) {
				acks++
			}
			s.Seq = s.Seq.Add(10)
			now = now.Add(tick.Microsecond)
		}
		if acks != c.acks {
			t.Errorf("%s: %d acknowledgements, want %d", c.name, acks, c.acks)
		}
	}
}
