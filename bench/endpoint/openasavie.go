package endpoint

import (
	"errors"
	"fmt"
	"time"

	"github.com/asavie/xdp"
)

// asaviePort is AF_XDP by github.com/asavie/xdp v0.3.3, an independent library to compare with. The library's options
// are global to the process and its Close leaks, so a process opens only one asaviePort and then exits.
type asaviePort struct {
	s      *xdp.Socket
	prog   *xdp.Program
	link   int
	frame  []byte
	filled []bool
}

// asavieFrame is the size of a frame of the library in bytes. asavieRing is the number of descriptors in each ring.
const (
	asavieFrame = 2048
	asavieRing  = 2048

	bindTries = 50
	bindPause = 10 * time.Millisecond
)

func openAsavie(e *frames) (framePort, error) {
	if len(e.frame) > asavieFrame {
		return nil, fmt.Errorf("%w: the library lacks packets of several frames", ErrSpec)
	}
	p := &asaviePort{link: e.link, frame: e.frame, filled: make([]bool, 2*asavieRing)}
	var err error
	if p.prog, err = xdp.NewProgram(1); err != nil {
		return nil, err
	}
	if err = p.prog.Attach(p.link); err != nil {
		return nil, err
	}
	options := xdp.SocketOptions{
		NumFrames: 2 * asavieRing, FrameSize: asavieFrame,
		FillRingNumDescs: asavieRing, CompletionRingNumDescs: asavieRing,
		RxRingNumDescs: asavieRing, TxRingNumDescs: asavieRing,
	}
	for try := 0; ; try++ {
		if p.s, err = xdp.NewSocket(p.link, 0, &options); err == nil {
			break
		}
		// The socket of a process that just ended may still occupy the queue: the kernel releases it a while later.
		if try == bindTries {
			return nil, errors.Join(err, p.prog.Detach(p.link))
		}
		time.Sleep(bindPause)
	}
	return p, p.prog.Register(0, p.s.FD())
}

func (p *asaviePort) transmit(most int) int {
	if n := p.s.NumCompleted(); n > 0 {
		p.s.Complete(n)
	}
	descs := p.s.GetDescs(min(most, p.s.NumFreeTxSlots()))
	for i := range descs {
		if at := descs[i].Addr / asavieFrame; !p.filled[at] {
			p.filled[at] = true
			copy(p.s.GetFrame(descs[i]), p.frame)
		}
		descs[i].Len = uint32(len(p.frame))
	}
	return p.s.Transmit(descs)
}

func (p *asaviePort) receiveFrames() int {
	if n := p.s.NumFreeFillSlots(); n > 0 {
		// The library has one pool of frames for both directions, so reception may take frames that transmission lacks.
		p.s.Fill(p.s.GetDescs(min(n, asavieRing)))
	}
	n := p.s.NumReceived()
	if n == 0 {
		return 0
	}
	for _, d := range p.s.Receive(n) {
		p.filled[d.Addr/asavieFrame] = false
	}
	return n
}

func (p *asaviePort) close() { p.prog.Detach(p.link) }
