package rdmap

import (
	"errors"
	"testing"

	"xwarp/ddp"
)

// TestConfigNeedsItsObjects: a queue pair needs a table, a domain, a stream and a Completer, and a shared receive queue
// of the same domain, before Init counts it anywhere.
func TestConfigNeedsItsObjects(t *testing.T) {
	h := newHost(t, 1)
	other, err := h.table.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	srq := func(pd *ddp.PD) *SRQ {
		s, err := NewSRQ(SRQConfig{Table: h.table, PD: pd, Depth: 1, MaxSGE: 1})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for name, change := range map[string]func(c *Config){
		"table":        func(c *Config) { c.Table = nil },
		"domain":       func(c *Config) { c.PD = nil },
		"stream":       func(c *Config) { c.Stream = 0 },
		"completer":    func(c *Config) { c.Completer = nil },
		"other domain": func(c *Config) { c.SRQ = srq(other) },
	} {
		cfg := defaultConfig(h)
		change(&cfg)
		if err := new(QP).Init(cfg); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	cfg := defaultConfig(h)
	cfg.SRQ = srq(h.pd)
	if err := new(QP).Init(cfg); err != nil {
		t.Error(err)
	}
	if err := h.table.FreePD(h.pd); !errors.Is(err, ddp.ErrBusy) {
		t.Errorf("the domain of a queue pair is freed: %v", err)
	}
	if err := h.table.FreePD(other); err != nil {
		t.Errorf("a domain without queue pairs: %v", err)
	}
}

// TestSRQConfig: each number of a shared receive queue has a bound at both ends, and it needs a table and a domain.
func TestSRQConfig(t *testing.T) {
	h := newHost(t, 1)
	for _, c := range []struct {
		depth, sge int
		want       error
	}{
		{0, 1, ErrConfig},
		{1, 1, nil},
		{MaxDepth, 1, nil},
		{MaxDepth + 1, 1, ErrConfig},
		{1, 0, ErrConfig},
		{1, MaxSGE, nil},
		{1, MaxSGE + 1, ErrConfig},
	} {
		s, err := NewSRQ(SRQConfig{Table: h.table, PD: h.pd, Depth: c.depth, MaxSGE: c.sge})
		if !errors.Is(err, c.want) {
			t.Errorf("%d receives of %d pieces: %v, want %v", c.depth, c.sge, err, c.want)
		}
		if err == nil && (s.Room() != c.depth || s.Len() != 0) {
			t.Errorf("%d receives have room for %d, and %d wait", c.depth, s.Room(), s.Len())
		}
	}
	for _, c := range []SRQConfig{{PD: h.pd}, {Table: h.table}} {
		c.Depth, c.MaxSGE = 1, 1
		if _, err := NewSRQ(c); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestStartParams: Start accepts Params up to the bounds of the configuration, and succeeds once.
func TestStartParams(t *testing.T) {
	const ird, ord = 3, 5
	for _, c := range []struct {
		p    Params
		want error
	}{
		{Params{Version: ddp.RDMAC, IRD: ird, ORD: ord}, nil},
		{Params{Version: ddp.IETF, IRD: ird, ORD: ord}, nil},
		{Params{Version: ddp.IETF + 1}, ErrConfig},
		{Params{IRD: -1}, ErrConfig},
		{Params{IRD: ird + 1}, ErrConfig},
		{Params{ORD: -1}, ErrConfig},
		{Params{ORD: ord + 1}, ErrConfig},
		{Params{SendRTR: RTRSend | RTRWrite}, ErrConfig},
		{Params{SendRTR: RTRRead, ExpectRTR: RTRWrite}, nil},
		{Params{ExpectRTR: RTRRead | RTRSend}, ErrConfig},
		{Params{ExpectRTR: RTRRead << 1}, ErrConfig},
	} {
		h, q := newHost(t, 1), new(QP)
		cfg := defaultConfig(h)
		cfg.MaxIRD, cfg.MaxORD = ird, ord
		if err := q.Init(cfg); err != nil {
			t.Fatal(err)
		}
		if err := q.Start(c.p); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v, want %v", c.p, err, c.want)
		}
		if want := map[bool]State{true: RTS, false: Idle}[c.want == nil]; q.State() != want {
			t.Errorf("%+v: state %v", c.p, q.State())
		}
		if err := q.Start(c.p); c.want == nil && !errors.Is(err, ErrState) {
			t.Errorf("%+v, started twice: %v", c.p, err)
		}
	}
}

// TestDepths: each queue holds its configured number of work requests, which need not be a power of two.
func TestDepths(t *testing.T) {
	const depth = 3
	h := newHost(t, 1).open(func(c *Config) { c.SendDepth, c.RecvDepth = depth, depth },
		Params{Version: ddp.IETF})
	s, err := NewSRQ(SRQConfig{Table: h.table, PD: h.pd, Depth: depth, MaxSGE: 1})
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= depth+1; n++ {
		var want error
		if n > depth {
			want = ErrFull
		}
		for name, err := range map[string]error{
			"send":           h.qp.PostSend(&SendWR{Op: WRSend}),
			"receive":        h.qp.PostRecv(&RecvWR{}),
			"shared receive": s.PostRecv(&RecvWR{}),
		} {
			if !errors.Is(err, want) {
				t.Errorf("%s %d: %v, want %v", name, n, err, want)
			}
		}
		if s.Room() != max(depth-n, 0) || s.Len() != min(n, depth) {
			t.Errorf("%d shared receives: %d wait, room for %d", n, s.Len(), s.Room())
		}
	}
	if send, recv := h.qp.Outstanding(); send != depth || recv != depth {
		t.Errorf("%d sends and %d receives are outstanding", send, recv)
	}
	for _, op := range []WROp{wrOps, WRRecv} {
		if err := h.qp.PostSend(&SendWR{Op: op}); !errors.Is(err, ErrOp) {
			t.Errorf("%v is sent: %v", op, err)
		}
	}
}

// TestReadOpensStream: a queue pair with a MaxIRD of 0 accepts an IRD of 1 if the RTR message is a Read, and answers
// that Read (RFC 6581, 9.1). It accepts no IRD of 2, and none of 1 for another RTR message.
func TestReadOpensStream(t *testing.T) {
	for _, c := range []struct {
		p    Params
		want error
	}{
		{Params{Version: ddp.IETF, IRD: 1, ExpectRTR: RTRRead, Wait: true}, nil},
		{Params{Version: ddp.IETF, IRD: 2, ExpectRTR: RTRRead, Wait: true}, ErrConfig},
		{Params{Version: ddp.IETF, IRD: 1, ExpectRTR: RTRWrite, Wait: true}, ErrConfig},
	} {
		a, b := newHost(t, 1), newHost(t, 2)
		a.open(nil, Params{Version: ddp.IETF, SendRTR: RTRRead})
		cfg := defaultConfig(b)
		cfg.MaxIRD, b.qp = 0, new(QP)
		if err := b.qp.Init(cfg); err != nil {
			t.Fatal(err)
		}
		if err := b.qp.Start(c.p); err != c.want {
			t.Errorf("%+v: %v, want %v", c.p, err, c.want)
		}
		if c.want == nil {
			settle(a, b, 200)
			if out, _ := a.qp.ReadsInFlight(); out != 0 || b.qp.State() != RTS {
				t.Errorf("%d Reads are not answered, %v", out, b.qp.State())
			}
		}
	}
}
