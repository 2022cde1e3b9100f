package demo

import (
	"errors"

	"xwarp/bpf"
	"xwarp/engine/esp"
)

// IPsec is how the connection was encrypted.
type IPsec struct {
	Algorithm string `json:"algorithm" doc:"\"AES-GCM-128\", with keys made for this run"`
	Mode      string `json:"mode" doc:"\"transport\""`
	ESP       uint64 `json:"esp_frames" doc:"encrypted frames that the steering programs of both hosts saw"`
	TCP       uint64 `json:"tcp_frames" doc:"frames of the connection in the clear: 0"`
}

// errClear is returned when a frame of the connection was not encrypted, or when no encrypted frame was seen.
var errClear = errors.New("frames of the connection were not encrypted")

// inspect adds to the result how many frames with and without encryption the steering programs of both hosts saw. It
// does nothing in a run without IPsec.
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
