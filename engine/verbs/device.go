package verbs

import (
	"context"
	"errors"
	"net/netip"
	"syscall"

	"xwarp/mpa/startup"
)

// Device is where everything else is made. Its methods may be called from any goroutine.
type Device interface {
	// Transport describes how the device moves bytes.
	Transport() Transport

	// Alloc returns n bytes of zeroed, page-aligned memory for regions, which takes room when it is touched. Memory
	// from here can be registered with every device; a daemon's device takes no other. It fails with ENOMEM, and EINVAL
	// for less than one byte.
	Alloc(n int) ([]byte, error)
	// Free gives memory back that Alloc returned. No region may be in it any more. It fails with EINVAL for other
	// memory.
	Free(mem []byte) error

	// AllocPD makes a protection domain. It fails with ENOMEM when there are as many as there may be.
	AllocPD() (PD, error)
	// CreateCQ makes a completion queue for at least depth completions, from 1 to MaxCQDepth (EINVAL). It must have
	// room for every work request that may be outstanding on the queue pairs that use it.
	CreateCQ(depth int) (CQ, error)
	// CreateSRQ makes a receive queue that queue pairs share. It fails with EINVAL for values out of range and
	// a domain of another device.
	CreateSRQ(SRQConfig) (SRQ, error)
	// CreateQP makes a queue pair, to be connected by Dial or ConnRequest.Accept. Receives may be posted at once. It
	// fails with EINVAL for values out of range and objects of another device.
	CreateQP(QPConfig) (QP, error)

	// Dial connects qp to remote and returns when it can be used. A peer that refuses markers or revision 2 is tried
	// again without, and remembered for some minutes. It fails with ErrRejected when the peer's consumer said no,
	// ECONNREFUSED also when nobody listens there, ETIMEDOUT, EHOSTUNREACH, ErrPeerDenied, ErrHasConn, and with the
	// context's error; the attempt is over then.
	Dial(ctx context.Context, remote netip.AddrPort, qp QP, cfg DialConfig) error
	// Listen waits for connections at addr: one of the host's addresses, or the unspecified one for all; port 0 takes a
	// free one. It fails with EADDRINUSE, EADDRNOTAVAIL for an address that the host does not have, and EACCES where
	// who asks may not have the port.
	Listen(addr netip.AddrPort, cfg ListenConfig) (Listener, error)

	// Close ends every connection with RST and gives everything back. What waits then, and every later call, fails with
	// net.ErrClosed. It may be called again.
	Close() error
}

// PD is a protection domain: the queue pairs in it reach the memory regions in it and no others.
type PD interface {
	// RegMR registers mem. The caller keeps mem and must not unmap it before Close of the region returned; while a peer
	// may write to it, its bytes change at any time. It fails with EINVAL for no memory, or one that is too long, and
	// with ErrNotShared on a daemon's device for memory that is not from Alloc.
	//
	// A device with several workers, one for each receive queue, registers mem with each of them: the region has one
	// STag, and connections of all queues share it. What two peers write to the same bytes may come mixed; atomics are
	// atomic across workers.
	RegMR(mem []byte, access Access) (MR, error)
	// AllocMW makes a memory window, which WRBindMW binds. It fails with ENOMEM when there are as many as there may be.
	AllocMW() (MW, error)
	// Close gives the domain back; it fails with EBUSY while regions, windows, queue pairs or shared receive queues
	// are in it, and may be called again.
	Close() error
}

// MR is a registered memory region.
type MR interface {
	// STag names the region to the queue pairs of its domain, and to peers.
	STag() STag
	// Bytes returns the memory.
	Bytes() []byte
	// SGE returns the piece of n bytes at off.
	SGE(off, n int) SGE
	// Remote returns what a peer needs to reach the region.
	Remote() RemoteMR
	// Err returns why the memory is lost, such as when the file behind it was shortened; nil while it is not.
	Err() error
	// Close makes the STag name nothing; it fails with EBUSY while work requests point into the region, and may be
	// called again.
	Close() error
}

// MW is a memory window: a queue pair binds it to bytes of a region with the right BindMW, and only its own peer
// reaches them by it. The peer may invalidate what is bound, as WRLocalInv does here. A region cannot be closed while a
// window is bound to it; the end of the queue pair unbinds its windows.
type MW interface {
	// STag is what WRBindMW changes the last byte of, so that each binding has a name of its own.
	STag() STag
	// Close unbinds the window and gives it back. It may be called again.
	Close() error
}

// CQ is a completion queue. Any goroutine may poll it.
type CQ interface {
	// Poll moves up to len(dst) completions into dst and returns how many. It never blocks. When there is none, it
	// fails with ErrCQOverrun if the queue was too small once, and with ErrClosed after Close of the queue or its
	// device.
	Poll(dst []Completion) (int, error)
	// Wait is Poll that blocks until there is at least one completion, Poll fails, or ctx is done: it fails with the
	// context's error then.
	Wait(ctx context.Context, dst []Completion) (int, error)
	// Resize gives the queue room for at least depth completions. Those that are there stay, and come first. It fails
	// with EINVAL as CreateCQ does, and with EBUSY when some are there that were so at the Resize before.
	Resize(depth int) error
	// Close gives the queue back; it fails with EBUSY while queue pairs use it.
	Close() error
}

// SRQ is a shared receive queue: each message of a peer takes the oldest receive when it begins to arrive, on
// whichever of the queue pairs that use it. iWARP has no way to make a peer wait: a message that finds none ends
// its connection. Any goroutine may call its methods.
type SRQ interface {
	// PostRecv queues *wr, which it copies. It fails with ErrQueueFull, ErrClosed, and EINVAL for more pieces
	// than the queue takes. Memory that is not there shows when a message takes the receive.
	PostRecv(wr *RecvWR) error
	// Arm asks for one call of SRQConfig.Limit when fewer than limit receives wait; 0 for none. It fails with
	// EINVAL for more than the depth.
	Arm(limit int) error
	// Len returns how many receives wait, Limit what Arm asked for and did not get yet.
	Len() int
	Limit() int
	// Close gives the queue back, and what waits in it; it fails with EBUSY while queue pairs use it.
	Close() error
}

// QP is a queue pair: one end of an iWARP connection. Its methods may be called from any goroutine.
type QP interface {
	// PostSend queues *wr, which it copies; the memory that wr's SGL names must stay until the completion,
	// and that of a Send or a Write must not change: the kernel's sockets may read it after its CRC was made,
	// and the peer ends the connection when that is wrong. What a peer reads by RDMA Read may change at any
	// time. It fails with ErrQueueFull, ErrNotReady, ErrClosed, and EINVAL for more pieces or inline bytes
	// than the queue pair takes. All else that is wrong with a request shows in its completion.
	PostSend(wr *SendWR) error
	// PostRecv queues *wr, which it copies, for one Send of the peer. It fails as PostSend does, but for
	// ErrNotReady, and with EINVAL for a queue pair with an SRQ.
	PostRecv(wr *RecvWR) error
	// Allow leaves the peer only these of RemoteRead, RemoteWrite and RemoteAtomic, whatever regions and windows allow
	// (IBV_QP_ACCESS_FLAGS). Without it a queue pair allows all. It fails with EINVAL for other rights.
	Allow(access Access) error
	// Disconnect closes the connection: gracefully when nothing is under way, else what is under way is flushed. It
	// fails with ErrNotReady before there is one.
	Disconnect() error
	// Close gives back what the queue pair has. It waits, a second at most, for a connection that closes in order or
	// by a Terminate, and resets any other. It may be called again.
	Close() error
	// Done is closed when the connection left full operation, or will never get there; Err says why.
	Done() <-chan struct{}
	// Err returns why the connection ended: a *ulpdu.Error when either end sent a Terminate, ECONNRESET, ETIMEDOUT,
	// ErrLapsed or what else Dial and Accept return; nil while it is up and after a graceful close.
	Err() error
	// Params returns what MPA agreed on, the peer's private data with it; nil before the connection is established.
	Params() *startup.Params
	// LocalAddr and RemoteAddr are the ends of the connection; zero before there is one.
	LocalAddr() netip.AddrPort
	RemoteAddr() netip.AddrPort
	// Info returns a snapshot of the connection; it fails with ErrNotReady before there is one.
	Info() (ConnInfo, error)
	// UserData returns that of QPConfig.
	UserData() any
}

// Listener waits for connections.
type Listener interface {
	// Addr returns where it listens.
	Addr() netip.AddrPort
	// Accept returns the next connection request. It fails with ErrListenerClosed after Close, and with the context's
	// error.
	Accept(ctx context.Context) (*ConnRequest, error)
	// Close stops listening; connections stay, and requests that wait are rejected.
	Close() error
}

// ConnRequest is a peer's wish to connect (RDMA_CM_EVENT_CONNECT_REQUEST). It must be answered with Accept or Reject,
// before the start-up timeout.
type ConnRequest struct {
	Local, Remote netip.AddrPort
	Revision      startup.Revision
	PrivateData   []byte
	IRD, ORD      int // the peer's; startup.NotNegotiated when it said nothing
	Answerer
}

// Answerer answers a connection request, once.
type Answerer interface {
	// Accept makes qp the end of the connection, sends private data along, and returns when the connection can be
	// used. It fails with ErrLapsed when the peer went away before, with ErrHasConn, with what ended the connection,
	// and with the context's error: the connection is reset then, also when the context was done before.
	Accept(ctx context.Context, qp QP, private []byte) error
	// Reject answers no; the peer gets private data along with it. It fails with ErrLapsed when the peer went away
	// before, and after an answer.
	Reject(private []byte) error
}

// Opened returns what opening a device of any kind gave as a Device, which is nil with an error.
func Opened[D Device](d D, err error) (Device, error) {
	if err != nil {
		return nil, err
	}
	return d, nil
}

// ListenAll listens on each address, and on the port of the first one where another has port 0. It leaves out a further
// address of a family that the host is without, such as IPv6. After an error no listener stays open.
func ListenAll(d Device, at []netip.AddrPort, cfg ListenConfig) (list []Listener, err error) {
	for i, a := range at {
		if i > 0 && a.Port() == 0 {
			a = netip.AddrPortFrom(a.Addr(), list[0].Addr().Port())
		}
		l, err := d.Listen(a, cfg)
		if i > 0 && (errors.Is(err, syscall.EAFNOSUPPORT) ||
			errors.Is(err, syscall.EADDRNOTAVAIL)) {
			continue
		}
		if err != nil {
			for _, l := range list {
				l.Close()
			}
			return nil, err
		}
		list = append(list, l)
	}
	return list, nil
}
