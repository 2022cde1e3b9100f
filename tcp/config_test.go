package tcp_test

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"xwarp/tcp"
	"xwarp/tcp/tick"
)

// TestDefaultsAreIdempotent: a second call of defaults changes nothing, whatever value an integer field had. The
// connections of a Listener get a Config that has its defaults already.
func TestDefaultsAreIdempotent(t *testing.T) {
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

// TestDefaults checks the defaults that the comments of Config give in brackets, and the limits of the RFCs.
//
//req:rfc9293-MUST-40 rfc5681-4.2-3 rfc7323-5.4-1
func TestDefaults(t *testing.T) {
	documented := tcp.Config{MTU: 1500, MSS: 1460, PathMTU: 1500, MinPathMTU: 552, RcvSpace: 65536,
		RcvSpaceMax: 65536, DelayedAck: 40 * tick.Millisecond, QuickAcks: 16, StretchAck: 2,
		TSTick: tick.Millisecond, SYNRetries: 8, SYNACKRetries: 6, SYNTimeout: tick.Second,
		UserTimeout: 300 * tick.Second, KeepaliveInterval: 75 * tick.Second, KeepaliveProbes: 9,
		PersistMax: 60 * tick.Second, TimeWait: 60 * tick.Second, FinWait2: 60 * tick.Second,
		MaxHoles: tcp.MaxHoles}
	for _, c := range []struct {
		name   string
		given  tcp.Config
		expect func(*tcp.Config)
	}{
		{"nothing", tcp.Config{}, func(*tcp.Config) {}},
		{"version 6", tcp.Config{IPv6: true}, func(c *tcp.Config) {
			c.IPv6, c.MSS, c.MinPathMTU = true, 1440, 1280
		}},
		{"a layer below that adds bytes", tcp.Config{IPv6: true, Encapsulation: 77},
			func(c *tcp.Config) {
				c.IPv6, c.MSS, c.MinPathMTU, c.Encapsulation = true, 1440, 1280-77, 77
			}},
		{"the smallest packets", tcp.Config{MTU: 1}, func(c *tcp.Config) { // RFC 791
			c.MTU, c.PathMTU, c.MinPathMTU, c.MSS = 68, 68, 68, 28
		}},
		{"the largest packets", tcp.Config{MTU: 1 << 20}, func(c *tcp.Config) {
			c.MTU, c.PathMTU, c.MSS = 65535, 65535, 65495
		}},
		{"the smallest MSS", tcp.Config{MSS: -1}, func(c *tcp.Config) { c.MSS = 1 }},
		{"the largest MSS", tcp.Config{MSS: 65536}, func(c *tcp.Config) { c.MSS = 65535 }},
		{"a path beyond the link", tcp.Config{PathMTU: 1501}, func(*tcp.Config) {}},
		{"a path below the floor", tcp.Config{PathMTU: 551}, func(c *tcp.Config) {
			c.PathMTU = 552
		}},
		{"a window beyond scaling", tcp.Config{RcvSpaceMax: 1<<30 + 1}, func(c *tcp.Config) {
			c.RcvSpaceMax = 1 << 30 // RFC 7323, 2.3
		}},
		{"less at most than at the start", tcp.Config{RcvSpace: 9000, RcvSpaceMax: 8999},
			func(c *tcp.Config) { c.RcvSpace, c.RcvSpaceMax = 9000, 9000 }},
		{"late acknowledgements", tcp.Config{DelayedAck: tick.Second}, func(c *tcp.Config) {
			c.DelayedAck = 500 * tick.Millisecond // RFC 1122, 4.2.3.2
		}},
		{"every acknowledgement", tcp.Config{StretchAck: 1}, func(*tcp.Config) {}},
		{"more holes than there are", tcp.Config{MaxHoles: tcp.MaxHoles + 1}, func(*tcp.Config) {}},
	} {
		want := documented
		c.expect(&want)
		c.given.Defaults()
		if d := cmp.Diff(want, c.given); d != "" {
			t.Errorf("%s: (-want +got)\n%s", c.name, d)
		}
	}
}

// TestPassiveDelayedAck: a negative DelayedAck and QuickAcks also apply to connections of a Listener.
func TestPassiveDelayedAck(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  tcp.Config
		acks int // for 20 segments, each in a batch of its own
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
