package demo

import (
	"crypto/rand"
	"errors"
	"net/netip"

	"xwarp/bpf"
	"xwarp/engine/esp"
	"xwarp/engine/host/xfrm"
	"xwarp/engine/ipsec"
	"xwarp/engine/xdp"
)

// IPsec is how the connection was encrypted.
type IPsec struct {
	Algorithm string `json:"algorithm" doc:"\"AES-GCM-128\", with keys made for this run"`
	Mode      string `json:"mode" doc:"\"transport\""`
	ESP       uint64 `json:"esp_frames" doc:"encrypted frames that the steering programs of both hosts saw"`
	TCP       uint64 `json:"tcp_frames" doc:"frames of the connection in the clear: 0"`
}

// protect makes the IPsec configurations of two hosts, with fresh keys that nobody else knows.
func protect(a, b netip.Addr) (forA, forB *xdp.IPsecConfig) {
	sa := func(from, to netip.Addr, spi uint32) *xfrm.SA {
		key := make([]byte, 16+4)
		rand.Read(key)
		return &xfrm.SA{SA: esp.SA{SPI: spi, ESN: true, Keymat: key}, Src: from, Dst: to}
	}
	there, back := sa(a, b, 0x1001), sa(b, a, 0x2001)
	c := func(out, in *xfrm.SA) *xdp.IPsecConfig {
		return &xdp.IPsecConfig{Rules: []ipsec.Rule{{Mode: esp.Transport}},
			Follow: xfrm.Static(&xfrm.State{Outbound: []*xfrm.SA{out}, Inbound: []*xfrm.SA{in}})}
	}
	return c(there, back), c(back, there)
}

// errClear is returned when frames that IPsec must encrypt were in the clear.
var errClear = errors.New("frames of the connection were not encrypted")

// inspect counts the frames that the steering programs saw during a run with IPsec.
func (r *run) inspect() error {
	if !r.cfg.IPsec {
		return nil
	}
	r.res.IPsec = &IPsec{Algorithm: "AES-GCM-128", Mode: esp.Transport.String()}
	for _, e := range []*end{r.a, r.b} {
		s, err := e.dev.Stats()
		if err != nil {
			return err
		}
		r.res.IPsec.ESP += s.Steering[bpf.ESP]
		r.res.IPsec.TCP += s.Steering[bpf.Flow] + s.Steering[bpf.Listener]
	}
	if r.res.IPsec.TCP > 0 || r.res.IPsec.ESP == 0 {
		return errClear
	}
	return nil
}
