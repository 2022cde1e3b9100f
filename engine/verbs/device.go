package verbs

import (
	"context"
	"errors"
	"net/netip"
	"syscall"

	"xwarp/mpa/startup"
)

// Device creates all other objects. Its methods may be called from any goroutine.
type Device interface {
	// Transport describes how the device moves data.
	Transport() Transport

	// Alloc returns n bytes of zeroed, page-aligned memory for regions. Pages are allocated on first access. Every
	// device can register the memory; a daemon's device registers no other memory. It fails with ENOMEM, and with
	// EINVAL if n < 1.
	Alloc(n int) ([]byte, error)
	// Free frees memory returned by Alloc, which no region may use any more. It fails with EINVAL for other memory.
	Free(mem []byte) error

	// AllocPD creates a protection domain. It fails with ENOMEM at the limit of the user or the device.
	AllocPD() (PD, error)
	// CreateCQ creates a completion queue for at least depth completions. depth must be 1 to MaxCQDepth (EINVAL), and
	// should cover all work requests that may be outstanding on the queue pairs that use the queue.
	CreateCQ(depth int) (CQ, error)
	// CreateSRQ creates a shared receive queue. It fails with EINVAL for values out of range and for a domain of
	// another device.
	CreateSRQ(SRQConfig) (SRQ, error)
	// CreateQP creates a queue pair, to be connected by Dial or ConnRequest.Accept. Receives may be posted at once. It
	// fails with EINVAL for values out of range and for objects of another device.
	CreateQP(QPConfig) (QP, error)

	// Dial connects qp to remote and returns when qp can be used. If the peer refuses markers or revision 2, Dial
	// retries without them, unless MPAConfig.SingleAttempt is set, and remembers this for some minutes. It fails with
	// ErrRejected if the peer's consumer rejects the connection, and with ECONNREFUSED if no program listens at remote;
	// errors.Is matches ErrRejected with ECONNREFUSED, too. Other errors are ETIMEDOUT, EHOSTUNREACH, ErrPeerDenied,
	// ErrHasConn, and the context's error. After an error no attempt is under way any more.
	Dial(ctx context.Context, remote netip.AddrPort, qp QP, cfg DialConfig) error
	// Listen listens for connections at addr: an address of the host, or the unspecified one for all. Port 0 picks a
	// free port. It fails with EADDRINUSE, with EADDRNOTAVAIL for an address that the host does not have, and with
	// EACCES if the caller may not use the port.
	Listen(addr netip.AddrPort, cfg ListenConfig) (Listener, error)

	// Close resets every connection and frees all objects. Blocked calls, and later ones that need a worker of the
	// device, fail with net.ErrClosed. Close may be called again.
	Close() error
}

// PD is a protection domain: its queue pairs can access its memory regions and no others.
type PD interface {
	// RegMR registers mem, which the caller must not unmap before the region is closed. While a peer may write to it,
	// its bytes can change at any time. It fails with EINVAL if mem is empty or too long, and on a daemon's device
	// with ErrNotShared if mem is not from Alloc.
	//
	// A device with several workers, one per receive queue, registers mem with each: the region has one STag, valid on
	// connections of all queues. Concurrent writes of two peers to the same bytes may interleave; atomics are atomic
	// across workers.
	RegMR(mem []byte, access Access) (MR, error)
	// AllocMW allocates a memory window, to be bound with WRBindMW. It fails with ENOMEM at the limit.
	AllocMW() (MW, error)
	// Close frees the domain. It fails with EBUSY while the domain has regions, windows, queue pairs or shared receive
	// queues. It may be called again.
	Close() error
}

// MR is a registered memory region.
type MR interface {
	// STag identifies the region to queue pairs of its domain and to peers.
	STag() STag
	// Bytes returns the memory.
	Bytes() []byte
	// SGE returns a scatter/gather element of n bytes at offset off.
	SGE(off, n int) SGE
	// Remote returns the description of the region that a peer needs to access it.
	Remote() RemoteMR
	// Err returns why the memory was lost, such as truncation of the file behind it, or nil.
	Err() error
	// Close invalidates the STag. It fails with EBUSY while work requests use the region or a window is bound to it. It
	// may be called again.
	Close() error
}

// MW is a memory window. A queue pair binds it to bytes of a region that has the right BindMW. Only the peer of this
// queue pair can access the bytes through the window. The peer may invalidate a binding, as WRLocalInv does locally. A
// region cannot be closed while a window is bound to it. Closing the queue pair unbinds its windows.
type MW interface {
	// STag returns the window's STag. WRBindMW changes its last byte, so that each binding has its own STag.
	STag() STag
	// Close unbinds and frees the window. It may be called again.
	Close() error
}

// CQ is a completion queue. Any goroutine may poll it.
type CQ interface {
	// Poll moves up to len(dst) completions into dst and returns their number. It never blocks. If there are no
	// completions, it fails with ErrCQOverrun after an overrun, and with ErrClosed after Close of the queue or its
	// device.
	Poll(dst []Completion) (int, error)
	// Wait is Poll, but blocks until there is a completion or Poll fails. If ctx is done first, it fails with the
	// context's error.
	Wait(ctx context.Context, dst []Completion) (int, error)
	// Resize changes the depth to at least depth completions. Completions in the queue stay and come first. It fails
	// with EINVAL as CreateCQ does, and with EBUSY while completions from before the previous Resize are still in the
	// queue.
	Resize(depth int) error
	// Close frees the queue. It fails with EBUSY while queue pairs use it.
	Close() error
}

// SRQ is a shared receive queue. Each incoming message that needs a receive, a Send or immediate data, takes the oldest
// one when its first byte arrives, on any of the queue pairs that use the queue. iWARP has no RNR NAK: on devices of
// this process such a message without a receive ends its connection. Through xwarpd it first waits up to 10 s for a
// receive. Any goroutine may call the methods.
type SRQ interface {
	// PostRecv queues a copy of *wr. It fails with ErrQueueFull, ErrClosed, and EINVAL for more than
	// SRQConfig.MaxSGE elements. Invalid memory is reported when a message has a byte for it.
	PostRecv(wr *RecvWR) error
	// Arm requests one call of SRQConfig.Limit when fewer than limit receives are posted. Zero disarms. It fails with
	// EINVAL if limit exceeds the depth.
	Arm(limit int) error
	// Len returns the number of posted receives.
	Len() int
	// Limit returns the armed limit, or zero if it was reached or none is armed.
	Limit() int
	// Close frees the queue with its receives. It fails with EBUSY while queue pairs use it.
	Close() error
}

// QP is a queue pair: one end of an iWARP connection. Its methods may be called from any goroutine.
type QP interface {
	// PostSend queues a copy of *wr. Memory in its SGL must stay valid until the completion. The data of a Send or
	// Write must not change until then: kernel sockets may read it after its CRC was computed, and the peer closes the
	// connection on a CRC error. Data that a peer reads by RDMA Read may change at any time. It fails with
	// ErrQueueFull, ErrNotReady, ErrClosed, and EINVAL for more elements or inline bytes than the queue pair allows.
	// All other errors are reported by the completion.
	PostSend(wr *SendWR) error
	// PostRecv queues a copy of *wr for one Send, or immediate data, of the peer. It may be called before there is a
	// connection. It fails with ErrQueueFull, with ErrClosed, and with EINVAL for more elements than the queue pair
	// allows or if the queue pair uses an SRQ.
	PostRecv(wr *RecvWR) error
	// Allow limits the peer to the given rights of RemoteRead, RemoteWrite and RemoteAtomic, whatever regions and
	// windows allow (IBV_QP_ACCESS_FLAGS). By default all are allowed. It fails with EINVAL for other rights.
	Allow(access Access) error
	// SetDSCP sets the class of the packets that the queue pair sends from now on, on its connection or its next one:
	// 1 to 63; zero means that of the listener or the device, None means 0. It fails with EINVAL for other values.
	SetDSCP(dscp int) error
	// Disconnect closes the connection: gracefully if no work requests are outstanding, otherwise with a reset that
	// flushes them. It fails with ErrNotReady if there is no connection yet.
	Disconnect() error
	// Close frees the queue pair. It waits up to a second for a graceful close or a Terminate in progress, and then
	// resets the connection if it still exists. A connection in full operation is reset at once. It may be called
	// again.
	Close() error
	// Done returns a channel that is closed when the connection has ended or can no longer be established. Err says
	// why.
	Done() <-chan struct{}
	// Err returns why the connection ended: a *ulpdu.Error if either end sent a Terminate, ECONNRESET, ETIMEDOUT,
	// ErrLapsed, or another error of Dial and Accept. It returns nil while the connection is up and after a graceful
	// close.
	Err() error
	// Params returns the negotiated MPA parameters and the peer's private data, or nil before the connection is
	// established.
	Params() *startup.Params
	// LocalAddr returns the local address of the connection, or the zero AddrPort before there is one.
	LocalAddr() netip.AddrPort
	// RemoteAddr returns the remote address of the connection, or the zero AddrPort before there is one.
	RemoteAddr() netip.AddrPort
	// Info returns a snapshot of the connection. It fails with ErrNotReady before there is one.
	Info() (ConnInfo, error)
	// UserData returns QPConfig.UserData.
	UserData() any
}

// Listener listens for connections.
type Listener interface {
	// Addr returns the listening address.
	Addr() netip.AddrPort
	// Accept returns the next connection request. It fails with ErrListenerClosed after Close, with the context's
	// error, and with the error of a device that has failed.
	Accept(ctx context.Context) (*ConnRequest, error)
	// Close stops listening. Established connections stay; pending requests are rejected.
	Close() error
}

// ConnRequest is a connection request of a peer (RDMA_CM_EVENT_CONNECT_REQUEST). It must be answered with Accept or
// Reject before the start-up timeout.
type ConnRequest struct {
	Local       netip.AddrPort   `json:"local"`
	Remote      netip.AddrPort   `json:"remote"`
	Revision    startup.Revision `json:"revision"`
	PrivateData []byte           `json:"private_data,omitempty"`
	IRD         int              `json:"ird"` // the peer's; startup.NotNegotiated if the request has none
	ORD         int              `json:"ord"` // the peer's, as IRD
	Answerer    `json:"-"`
}

// Answerer answers a connection request, once.
type Answerer interface {
	// Accept connects qp to the peer, sends private data with the reply, and returns when the connection can be used.
	// It fails with ErrLapsed if the request has lapsed, with ErrHasConn, with the error that ended the connection, and
	// with the context's error. If ctx is done before Accept returns, the connection is reset.
	Accept(ctx context.Context, qp QP, private []byte) error
	// Reject rejects the request and sends private data with the reply. It fails with ErrLapsed if the request has
	// lapsed or was answered.
	Reject(private []byte) error
}

// Opened converts the result of opening a device of any kind to a Device, which is nil on error.
func Opened[D Device](d D, err error) (Device, error) {
	if err != nil {
		return nil, err
	}
	return d, nil
}

// ListenAll listens on each address; for port 0 it uses the port of the first one. It skips each address, except the
// first, that the host does not have or whose family, such as IPv6, the host lacks. On error it closes all listeners.
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
