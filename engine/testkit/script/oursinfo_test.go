package script

import (
	"errors"

	"xwarp/engine/bytestream"
	"xwarp/tcp"
	"xwarp/tcp/cc"
	"xwarp/tcp/ip"
	"xwarp/tcp/loss"
)

// errno names err as the kernel does.
func (h *ours) errno(s *end, err error) string {
	var c tcp.Cause
	switch {
	case err == nil:
		return ""
	case errors.Is(err, bytestream.ErrAgain):
		return "EAGAIN"
	case errors.Is(err, bytestream.ErrShutdown):
		return "EPIPE"
	case !errors.As(err, &c):
		return err.Error()
	}
	s.shown = true
	switch c {
	case tcp.CauseRefused:
		return "ECONNREFUSED"
	case tcp.CauseReset:
		return "ECONNRESET"
	case tcp.CauseTimeout, tcp.CauseKeepalive:
		return "ETIMEDOUT"
	case tcp.CauseUnreachable:
		return unreachable(s.e.Conn().SoftError())
	}
	return "ECONNABORTED"
}

func unreachable(k ip.ICMPKind) string {
	switch k {
	case ip.PortUnreachable:
		return "ECONNREFUSED"
	case ip.ProtoUnreachable:
		return "ENOPROTOOPT"
	case ip.NetUnreachable:
		return "ENETUNREACH"
	case ip.Prohibited:
		return "EACCES"
	}
	return "EHOSTUNREACH"
}

func (h *ours) state(flow int) string {
	if s := h.socks[flow]; s != nil {
		return s.e.Conn().State().String()
	}
	return "EBADF"
}

func (h *ours) lastError(flow int) string {
	s := h.socks[flow]
	if s == nil {
		return "EBADF"
	}
	c := s.e.Conn().Cause()
	if s.shown || c == tcp.CauseNone || c == tcp.CauseClosed {
		return ""
	}
	return h.errno(s, c)
}

func (h *ours) info(flow int) (map[string]int, error) {
	s := h.socks[flow]
	if s == nil {
		return nil, errors.New("no such socket")
	}
	c := s.e.Conn()
	i := c.Info(h.clock)
	mss := max(i.SndMSS, 1)
	segs := func(byteCount int) int { return (byteCount + mss - 1) / mss }
	bit := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	l := &i.Loss
	m := map[string]int{
		"cwnd": l.CC.Cwnd / mss, "ssthresh": l.CC.Ssthresh / mss, "unacked": l.Records,
		"sacked": segs(l.Sacked), "lost": segs(l.Lost),
		"rto": ms(l.RTO), "srtt": ms(l.SRTT), "rttvar": ms(l.RTTVar), "backoff": i.Backoff,
		"probes": i.Probes, "mss": i.SndMSS,
		"advmss": i.AdvMSS, "pmtu": i.PathMTU, "retrans": int(l.Counters.Retransmitted),
		"timestamps": bit(i.Timestamps),
		"sack":       bit(i.SACK), "wscale": bit(i.WindowScaling), "ecn": bit(i.ECN != tcp.ECNOff),
		"ca":     caOf(l.State),
		"dsacks": int(l.Counters.DSACKs), "sndws": int(i.SndWScale),
	}
	if l.CC.Ssthresh >= cc.Infinite {
		m["ssthresh"] = infinite
	}
	return m, nil
}

// infinite is Linux's slow start threshold before the first loss.
const infinite = 0x7fffffff

func caOf(s loss.State) int {
	return map[loss.State]int{loss.Open: caOpen, loss.Disorder: caDisorder, loss.CWR: caCWR,
		loss.Recovery: caRecovery, loss.Loss: caLoss}[s]
}
