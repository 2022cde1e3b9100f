package sim

import (
	"encoding/binary"

	"xwarp/engine/stack"
	"xwarp/ring"
	"xwarp/tcp/tick"
)

// maxRelayed is how many frames of the second queue may wait for the worker of the first.
const maxRelayed = 64

// relay is the worker of a host's second queue, which has no connections. Frames that arrive there are handed to the
// first worker, as the engine does for queues added later.
type relay struct {
	host   *Host
	kernel *ring.FakeKernel
	stk    *stack.Stack
	kept   []*stack.Stray
}

// bootRelay opens the second queue.
func (h *Host) bootRelay(c ring.Config) error {
	r := h.relay
	if r == nil {
		r = &relay{host: h, kernel: ring.NewFakeKernel(h.cfg.Kernel)}
		h.relay = r
	}
	sock, err := ring.OpenFake(c, r.kernel)
	if err != nil {
		return err
	}
	r.kept = nil
	cfg := stack.Config{Port: sock, MAC: h.mac, MTU: h.cfg.MTU, Resolver: h, Stray: r.keep}
	if h.cfg.IPsec != nil {
		cfg.IPsec = h.cfg.IPsec(h, true)
	}
	r.stk, err = stack.New(cfg)
	return err
}

// keep is stack.Config.Stray.
func (r *relay) keep(x *stack.Stray) bool {
	if len(r.kept) == maxRelayed {
		r.stk.DropStray()
	} else {
		r.kept = append(r.kept, x.Keep())
	}
	return true
}

// takes reports whether the device puts a frame on the second queue. It hashes the ports, with an indirection table
// that changes every 268 ms.
func (r *relay) takes(frame []byte, now tick.Time) bool {
	if r == nil || len(frame) < 58 {
		return false
	}
	at := 34
	if frame[14]>>4 == 6 {
		at = 54
	}
	sum := mix(uint64(binary.BigEndian.Uint32(frame[at:])) ^ uint64(now)>>28)
	return sum&1 == 1
}

// step receives on the second queue and hands frames over.
func (r *relay) step(now tick.Time) (worked bool) {
	if r == nil {
		return false
	}
	worked = r.stk.Receive(now)
	worked = r.stk.Transmit(now) || worked
	kept := r.kept
	r.kept = nil
	for _, x := range kept {
		r.host.stk.Inject(x, now)
	}
	return worked || len(kept) > 0
}

// deadline returns when step has work.
func (r *relay) deadline() tick.Time {
	if r == nil {
		return tick.Never
	}
	return r.stk.Deadline()
}

// SetMAC changes the Ethernet address of h.
func (h *Host) SetMAC(mac [6]byte) {
	h.mac = mac
	h.stk.SetMAC(mac)
	if h.relay != nil {
		h.relay.stk.SetMAC(mac)
	}
	h.Wake()
}
