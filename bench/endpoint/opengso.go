package endpoint

import (
	"errors"

	"xwarp/ring/gso"
	"xwarp/tcp/ip"
)

// gsoPort sends blocks, which are many frames in one buffer, through the kernel's segmentation offload. The other end
// receives over AF_XDP by package ring.
type gsoPort struct {
	s     *gso.Sender
	block gso.Block
	shape gso.Shape
	n     int // segments of a block
	size  int // bytes of a block's frame
}

func openGSO(e *frames) (framePort, error) {
	if e.spec.Mode != Bandwidth {
		return nil, errors.New("blocks support bandwidth only")
	}
	p := &gsoPort{shape: gso.Shape{IPAt: ip.EthernetLen, Headers: payloadAt,
		Payload: len(e.frame) - payloadAt}, block: gso.NewBlock(gso.MaxBlock)}
	var err error
	if p.s, err = gso.OpenSender(e.link); err != nil {
		return nil, err
	}
	p.n = min((gso.MaxBlock-payloadAt)/p.shape.Payload, max(1, e.spec.Depth))
	p.size = payloadAt + p.n*p.shape.Payload
	copy(p.block.Frame(), e.frame[:payloadAt])
	return p, nil
}

func (p *gsoPort) transmit(int) int {
	if p.s.Send(p.block, p.size, &p.shape) != 0 {
		return 0
	}
	return p.n
}

// receiveFrames is never called, because the server has a ringPort.
func (p *gsoPort) receiveFrames() int { return 0 }

func (p *gsoPort) close() { p.s.Close() }
