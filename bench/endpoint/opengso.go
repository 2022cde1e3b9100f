package endpoint

import (
	"errors"

	"github.com/vishvananda/netlink"

	"xwarp/ring/gso"
)

// gsoPort sends blocks through the kernel's segmentation offload. The other end receives by package ring.
type gsoPort struct {
	s     *gso.Sender
	block gso.Block
	shape gso.Shape
	n     int // segments of a block
	size  int // octets of a block's frame
}

func openGSO(e *frames) (framePort, error) {
	if e.spec.Mode != Bandwidth {
		return nil, errors.New("blocks are for bandwidth")
	}
	nic, err := netlink.LinkByName(e.place.Interface)
	if err != nil {
		return nil, err
	}
	const headers = ethernet + 20 + tcpHeader
	p := &gsoPort{shape: gso.Shape{IPAt: ethernet, Headers: headers,
		Payload: len(e.frame) - headers}, block: gso.NewBlock(gso.MaxBlock)}
	if p.s, err = gso.OpenSender(nic.Attrs().Index); err != nil {
		return nil, err
	}
	p.n = min((gso.MaxBlock-headers)/p.shape.Payload, max(1, e.spec.Depth))
	p.size = headers + p.n*p.shape.Payload
	copy(p.block.Frame(), e.frame[:headers])
	return p, nil
}

func (p *gsoPort) send(int) int {
	if p.s.Send(p.block, p.size, &p.shape) != 0 {
		return 0
	}
	return p.n
}

// receive is never called: a server has a receiver of package ring.
func (p *gsoPort) receive() int { return 0 }

func (p *gsoPort) close() { p.s.Close() }
