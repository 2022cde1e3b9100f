package endpoint

import (
	"errors"

	"xwarp/bpf"
	"xwarp/ring"
)

// ringPort is AF_XDP by package ring.
type ringPort struct {
	s        *ring.Socket
	steer    *bpf.Steering
	frameLen int    // bytes of a frame
	mem      []byte // payload is copied from here into frames and from frames to here; nil: not copied
	at       int    // offset in mem of the next copy
	batch    [burst]ring.Packet
}

func openRing(e *frames) (framePort, error) {
	p := &ringPort{frameLen: len(e.frame)}
	if e.spec.Copy {
		p.mem = make([]byte, copyArea)
		clear(p.mem) // allocates its pages before the measurement
	}
	var err error
	if p.s, err = ring.Open(ring.Config{Ifindex: e.link,
		TxSlot: ring.SlotFor(len(e.frame))}); err != nil {
		return nil, err
	}
	if err := p.steerTo(e); err != nil {
		p.close()
		return nil, err
	}
	var all []ring.TxBuf
	for buf, ok := p.s.AllocTx(); ok; buf, ok = p.s.AllocTx() {
		copy(buf.Data, e.frame)
		all = append(all, buf)
	}
	for _, buf := range all {
		p.s.CancelTx(buf)
	}
	p.s.Refill()
	return p, nil
}

func (p *ringPort) steerTo(e *frames) (err error) {
	if p.steer, err = bpf.Load(bpf.Options{}); err != nil {
		return err
	}
	_, err = p.steer.Attach(e.link, bpf.ModeAuto)
	return errors.Join(err, p.steer.AddFlow(e.local, e.remote), p.steer.SetSocket(0, p.s.Fd()))
}

func (p *ringPort) transmit(most int) (n int) {
	for n < most {
		buf, ok := p.s.AllocTx()
		if !ok {
			break
		}
		if p.mem != nil {
			copy(buf.Data[payloadAt:p.frameLen], p.nextPayload(p.frameLen-payloadAt))
		}
		p.s.Send(buf, p.frameLen)
		n++
	}
	p.s.Flush()
	p.s.Reap()
	return n
}

// copyArea is the size in bytes of the memory that frames are copied from and to: eight messages of 1 MiB.
const copyArea = 8 << 20

// nextPayload returns the next n bytes of mem. At the end of mem it starts again at the beginning.
func (p *ringPort) nextPayload(n int) []byte {
	if p.at+n > len(p.mem) {
		p.at = 0
	}
	b := p.mem[p.at : p.at+n]
	p.at += n
	return b
}

func (p *ringPort) receiveFrames() int {
	n := p.s.Recv(p.batch[:])
	for i := range n {
		for k := 0; p.mem != nil && k < p.batch[i].NumFrags(); k++ {
			b := p.batch[i].Frag(k)
			copy(p.nextPayload(len(b)), b)
		}
		p.s.Release(&p.batch[i])
	}
	if n > 0 {
		p.s.Refill()
	}
	return n
}

func (p *ringPort) close() {
	p.s.Close()
	if p.steer != nil {
		p.steer.Close()
	}
}
