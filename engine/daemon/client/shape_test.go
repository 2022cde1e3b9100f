package client_test

import (
	"context"
	"net/netip"
	"testing"

	"xwarp/ddp"
	"xwarp/engine"
	"xwarp/engine/daemon/client"
	"xwarp/mpa/startup"
)

// What follows is the verbs as interfaces over the types of one package. Both packages must fit, so that a
// program which uses these methods compiles with either: it changes its import and its constructor.

type device[PD, MR, QP, QPConfig, Listener any] interface {
	Transport() engine.Transport
	Alloc(n int) ([]byte, error)
	Free(mem []byte) error
	AllocPD() (*PD, error)
	CreateQP(QPConfig) (*QP, error)
	Dial(context.Context, netip.AddrPort, *QP, engine.ConnConfig) error
	Listen(netip.AddrPort, int, engine.ConnConfig) (*Listener, error)
	Close() error
}

type domain[MR any] interface {
	RegMR([]byte, ddp.Access) (*MR, error)
	Close() error
}

type region interface {
	STag() ddp.STag
	Bytes() []byte
	SGE(off, n int) engine.SGE
	Close() error
}

type completions[Completion any] interface {
	Poll([]Completion) (int, error)
	Wait(context.Context, []Completion) (int, error)
}

type queuePair interface {
	PostSend(*engine.SendWR) error
	PostRecv(*engine.RecvWR) error
	Disconnect() error
	Close() error
	Down() <-chan struct{}
	Err() error
	Params() *startup.Params
	LocalAddr() netip.AddrPort
	RemoteAddr() netip.AddrPort
	Info() (engine.ConnInfo, error)
	Context() any
}

type listener[ConnRequest any] interface {
	Addr() netip.AddrPort
	Accept(context.Context) (*ConnRequest, error)
	Close() error
}

type connRequest[QP any] interface {
	Accept(context.Context, *QP, []byte) error
	Reject([]byte) error
}

var (
	_ device[engine.PD, engine.MR, engine.QP, engine.QPConfig, engine.Listener] = (*engine.Device)(
		nil)
	_ device[client.PD, client.MR, client.QP, client.QPConfig, client.Listener] = (*client.Device)(
		nil)
	_ domain[engine.MR]              = (*engine.PD)(nil)
	_ domain[client.MR]              = (*client.PD)(nil)
	_ region                         = (*engine.MR)(nil)
	_ region                         = (*client.MR)(nil)
	_ completions[engine.Completion] = (*engine.CQ)(nil)
	_ completions[client.Completion] = (*client.CQ)(nil)
	_ queuePair                      = (*engine.QP)(nil)
	_ queuePair                      = (*client.QP)(nil)
	_ listener[engine.ConnRequest]   = (*engine.Listener)(nil)
	_ listener[client.ConnRequest]   = (*client.Listener)(nil)
	_ connRequest[engine.QP]         = (*engine.ConnRequest)(nil)
	_ connRequest[client.QP]         = (*client.ConnRequest)(nil)
	_ func(int) (*engine.CQ, error)  = engine.NewCQ
	_ func(int) (*client.CQ, error)  = client.NewCQ
)

// The structs that programs fill and read have the same fields.
var (
	_ = engine.QPConfig{PD: (*engine.PD)(nil), SendCQ: (*engine.CQ)(nil), RecvCQ: nil, SendDepth: 0,
		RecvDepth: 0, MaxSGE: 0, MaxInline: 0, IRD: 0, ORD: 0, Context: nil}
	_ = client.QPConfig{PD: (*client.PD)(nil), SendCQ: (*client.CQ)(nil), RecvCQ: nil, SendDepth: 0,
		RecvDepth: 0, MaxSGE: 0, MaxInline: 0, IRD: 0, ORD: 0, Context: nil}
)

// TestShape keeps the completions alike: a field that one has and the other has not would not be missed above.
func TestShape(t *testing.T) {
	e := engine.Completion{ID: 1, Op: 2, Status: 3, Flags: 4, ByteLen: 5, Imm: [8]byte{6},
		Invalidated: 7}
	c := client.Completion{ID: 1, Op: 2, Status: 3, Flags: 4, ByteLen: 5, Imm: [8]byte{6},
		Invalidated: 7}
	if (client.Completion{ID: e.ID, Op: e.Op, Status: e.Status, Flags: e.Flags, ByteLen: e.ByteLen,
		Imm: e.Imm, Invalidated: e.Invalidated}) != c {
		t.Error("completions differ")
	}
}
