package sim

import (
	"fmt"

	"xwarp/engine/stack"
	"xwarp/tcp"
)

// alignment checks that FPDU and segment boundaries differ only for a known reason.
func (e *rdmaEnd) alignment() error {
	if e.iw == nil || e.iw.Endpoint == nil {
		return nil
	}
	k := e.iw.Endpoint.Conn().Counters()
	if e.c.s.wide != nil && e.c.s.wide.mangled {
		return nil // foreign faults change windows and acknowledgements
	}
	if n := k.SplitEMSS + k.SplitRetransmit; n > 0 && !e.c.s.cuts {
		return fmt.Errorf("%d segments lost their alignment for EMSS, which never changed", n)
	}
	if k.SplitWindow > 0 && e.c.cfg.window >= 16<<10 {
		return fmt.Errorf("%d segments lost their alignment for a window of %d", k.SplitWindow,
			e.c.cfg.window)
	}
	st := e.iw.Stats()
	// A length that was changed on the path makes a whole FPDU look cut.
	whole := !e.c.s.cuts && !e.c.s.recut && !e.c.s.spoils
	if st.LimitDrops == 0 && whole && (st.Unaligned > 0 || st.Partial > 0) {
		return fmt.Errorf("%d unaligned and %d partial offers on a path that does not cut segments",
			st.Unaligned, st.Partial)
	}
	if st.Records != 0 || st.HeldBytes != 0 {
		return fmt.Errorf("receiver holds %d bytes and %d records after the end", st.HeldBytes,
			st.Records)
	}
	return nil
}

// step checks the invariants of c after each instant.
func (c *rdmaConn) step() error {
	for _, e := range []*rdmaEnd{c.a, c.b} {
		if !e.alive() {
			continue
		}
		if o, n := e.pool.InUse(); o > c.cfg.poolBound() || n > c.cfg.poolRecords+64 {
			return fmt.Errorf("end %s: pool exceeds its bounds: %d bytes, %d records", e.name,
				o, n)
		}
		if s, r := e.qp.Outstanding(); s > c.cfg.depth || r > 64 {
			return fmt.Errorf("end %s: %d and %d requests outstanding", e.name, s, r)
		}
		if err := e.checkReceived(); err != nil {
			return fmt.Errorf("end %s: %w", e.name, err)
		}
		if st := e.iw; st != nil && st.Stats().HeldBytes > c.cfg.window+(64<<10) {
			return fmt.Errorf("end %s holds %d bytes, its window is %d", e.name,
				st.Stats().HeldBytes, c.cfg.window)
		}
	}
	if c.a.alive() && c.b.alive() {
		return acked(c.a.endpoint(), c.b.endpoint())
	}
	return nil
}

func (e *rdmaEnd) endpoint() *stack.Endpoint {
	if e.iw == nil {
		return nil
	}
	return e.iw.Endpoint
}

// acked checks that each end has received all data that the other counts as acknowledged.
func acked(a, b *stack.Endpoint) error {
	if a == nil || b == nil {
		return nil
	}
	for _, d := range [][2]*stack.Endpoint{{a, b}, {b, a}} {
		s, r := d[0].Conn(), d[1].Conn()
		if s.State() < tcp.Established || r.State() < tcp.Established {
			continue
		}
		if n := s.SndUna().Diff(r.RcvNxt()); n > 0 {
			return fmt.Errorf("%d bytes were acknowledged that the peer does not have", n)
		}
		if i := r.Info(0); i.Holes > tcp.MaxHoles {
			return fmt.Errorf("%d holes", i.Holes)
		}
	}
	return nil
}
