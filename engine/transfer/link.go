package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"xwarp/ddp/rdmap"
	"xwarp/engine/verbs"
	"xwarp/tcp"
)

// link is one end of a connection: messages in both directions, and the Beats that distinguish slow peers from dead
// ones. One goroutine calls its methods, except for postMessage, and for those that the goroutines of startLoops call.
type link struct {
	end   *verbs.Endpoint
	slots verbs.MR // receive buffers
	idle  time.Duration

	in               chan Message    // messages from receiveLoop to receive
	alive            context.Context // done, with the cause, when nothing more is received
	fail             context.CancelCauseFunc
	messagesReceived atomic.Int64  // number of received messages
	posted           atomic.Uint64 // number of posted send work requests
	beaten           uint64        // the value of posted after the last Beat; owned by the goroutine of the Beats
	silence          atomic.Bool   // the connection ended because the peer was inactive
	watched          atomic.Pointer[watch]
	stop             context.CancelFunc
	running          sync.WaitGroup // its goroutines
	once             sync.Once      // makes shut run once
}

// ErrIdle is wrapped if a peer was inactive for too long.
var ErrIdle = errors.New("the peer sent no data and no keepalive")

// newLink creates a queue pair that can receive messages as soon as it is connected.
func newLink(dev verbs.Device, idle time.Duration) (*link, error) {
	end, err := verbs.NewEndpoint(dev, verbs.EndpointConfig{QPConfig: verbs.QPConfig{
		SendDepth: sends, RecvDepth: receives, MaxInline: MaxMessage, IRD: steps, ORD: steps,
	}})
	if err != nil {
		return nil, err
	}
	l := &link{end: end, idle: idle, in: make(chan Message, receives)}
	l.alive, l.fail = context.WithCancelCause(context.Background())
	l.slots, err = l.end.Buffer(receives*MaxMessage, verbs.LocalWrite)
	for i := uint64(0); err == nil && i < receives; i++ {
		err = l.postReceive(i)
	}
	if err != nil {
		return nil, errors.Join(err, l.end.Close())
	}
	return l, nil
}

func (l *link) postReceive(slot uint64) error {
	return l.end.QP.PostRecv(&verbs.RecvWR{ID: slot,
		SGL: []verbs.SGE{l.slots.SGE(int(slot)*MaxMessage, MaxMessage)}})
}

// startLoops starts the goroutines, once the queue pair is connected.
func (l *link) startLoops() {
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	l.running.Go(func() { l.receiveLoop(ctx) })
	l.running.Go(func() { l.beatLoop(ctx) })
}

// postMessage queues a message. Any goroutine may call it.
func (l *link) postMessage(m *Message) error { return l.sendWR(m, &verbs.SendWR{}) }

// sendWR is postMessage with the other fields of wr.
func (l *link) sendWR(m *Message, wr *verbs.SendWR) error {
	var b [MaxMessage]byte
	wr.Op, wr.Inline = rdmap.WRSend, AppendMessage(b[:0], m)
	err := l.post(wr)
	if err != nil {
		return fmt.Errorf("%v: %w", m.Type, err)
	}
	return nil
}

// post posts wr to the send queue, and counts it.
func (l *link) post(wr *verbs.SendWR) error {
	err := l.end.QP.PostSend(wr)
	if err == nil {
		l.posted.Add(1)
	}
	return err
}

// receive returns the peer's next message. It converts an Error to a RemoteError.
func (l *link) receive(ctx context.Context) (m Message, err error) {
	select {
	case m = <-l.in:
	default:
		select {
		case m = <-l.in:
		case <-l.alive.Done():
			select {
			case m = <-l.in: // received before the failure
			default:
				return m, context.Cause(l.alive)
			}
		case <-ctx.Done():
			return m, context.Cause(ctx)
		}
	}
	if m.Type == TypeError {
		return m, &RemoteError{m.Code, m.Text}
	}
	return m, nil
}

// expect receives the next message, and fails unless its type is t.
func (l *link) expect(ctx context.Context, t Type) (Message, error) {
	m, err := l.receive(ctx)
	return m, checkType(t, &m, err)
}

// checkType returns err, or an error if m is not of type t.
func checkType(t Type, m *Message, err error) error {
	if err == nil && m.Type != t {
		err = fmt.Errorf("%w: got %v, want %v", ErrProtocol, m.Type, t)
	}
	return err
}

// ErrProtocol is wrapped if the peer violated the protocol.
var ErrProtocol = errors.New("transfer protocol violated")

// ended reports whether the connection has ended.
func (l *link) ended() bool { return l.alive.Err() != nil }

// untilClosed returns a context that also ends with the connection, and a function that releases it.
func (l *link) untilClosed(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.alive, func() { cancel(context.Cause(l.alive)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// receiveLoop processes incoming messages.
func (l *link) receiveLoop(ctx context.Context) {
	for {
		var c [1]verbs.Completion
		if _, err := l.end.RecvCQ.Wait(ctx, c[:]); err != nil {
			l.fail(err)
			return
		}
		if err := l.arrived(&c[0]); err != nil {
			l.fail(err)
			return
		}
	}
}

// arrived processes a completed receive and reposts its buffer.
func (l *link) arrived(c *verbs.Completion) error {
	if c.Status != rdmap.Success {
		return l.cause()
	}
	slot := l.slots.Bytes()[c.ID*MaxMessage:][:c.ByteLen]
	m, err := ParseMessage(slot)
	if err != nil {
		return err
	}
	if err := l.postReceive(c.ID); err != nil {
		return err
	}
	l.messagesReceived.Add(1)
	if m.Type == TypeBeat {
		return nil
	}
	select {
	case l.in <- m:
		return nil
	default:
		return fmt.Errorf("%w: %d unexpected messages", ErrProtocol, receives)
	}
}

// ErrPeerClosed is returned by receive after a graceful close.
var ErrPeerClosed = errors.New("the peer closed the connection")

// cause returns why the connection ended. It waits briefly for the reason.
func (l *link) cause() error {
	err := l.end.Cause()
	if l.silence.Load() {
		return fmt.Errorf("%w for %v", ErrIdle, l.idle)
	}
	return cmp.Or(err, ErrPeerClosed)
}

// beatLoop sends Beats, and ends the connection if the peer is inactive.
func (l *link) beatLoop(ctx context.Context) {
	tick := time.Tick(max(l.idle/beatsPerIdle, minBeat))
	last, silent := uint64(0), 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.alive.Done():
			return
		case <-tick:
		}
		now := uint64(l.messagesReceived.Load())
		if i, err := l.end.QP.Info(); err == nil {
			l.beat(i.Counters.MessagesOut)
			now += i.Counters.PayloadIn
			if w := l.watched.Load(); w != nil {
				w.tick(i.Counters.PayloadIn+i.Counters.PayloadOut, l.idle)
			}
		}
		if now != last {
			last, silent = now, 0
			continue
		}
		if silent++; silent > beatsPerIdle {
			l.silence.Store(true)
			l.end.QP.Disconnect()
			return
		}
	}
}

// beat sends a Beat unless the previous one still waits behind data. In that case the data shows that this end is
// alive, and the Beats of a slow transfer would arrive all at once, more than the peer has receives for. out is the
// number of messages that have left the send queue.
func (l *link) beat(out uint64) {
	if out < l.beaten {
		return
	}
	l.postMessage(&Message{Type: TypeBeat}) // an error is ignored: a full queue is moving data
	l.beaten = l.posted.Load()
}

// drained reports whether nothing is in flight on the connection.
func (l *link) drained() bool {
	i, err := l.end.QP.Info()
	if err != nil || i.TCP != nil && i.TCP.State == tcp.TimeWait {
		return true
	}
	return i.State == rdmap.Idle || i.State == rdmap.Errored
}

// flushID is the ID of a link's last work request.
const flushID = 1<<64 - 1

// flush waits until the peer has all sent messages, at most closeWait: an earlier close would discard them.
func (l *link) flush() {
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	err := l.sendWR(&Message{Type: TypeBeat}, &verbs.SendWR{ID: flushID, Flags: rdmap.Signaled})
	for err == nil {
		var c [1]verbs.Completion
		if _, err = l.end.SendCQ.Wait(ctx, c[:]); err == nil && c[0].ID == flushID {
			return
		}
	}
}

// shut ends the connection, gracefully if that is possible in a short time. It may be called again.
func (l *link) shut() { l.once.Do(l.shutOnce) }

func (l *link) shutOnce() {
	if l.stop != nil {
		l.stop()
		l.running.Wait()
		l.flush()
	}
	l.end.QP.Disconnect() // an error means that the connection is already gone
	for end := time.Now().Add(closeWait); !l.drained() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// free frees memory that the peer could read, once the answers to its RDMA Reads are sent: a client that sent Done has
// them, and its acknowledgement is on the way. If it fails, the memory stays until the link ends, which must be soon.
func (l *link) free(ctx context.Context, mr verbs.MR) error {
	wait, cancel := context.WithTimeoutCause(ctx, closeWait, errUnread)
	defer cancel()
	wait, stop := l.untilClosed(wait)
	defer stop()
	for {
		mem := mr.Bytes()
		err := l.end.Deregister(mr)
		if err == nil {
			return l.end.Dev.Free(mem)
		}
		if !errors.Is(err, verbs.ErrBusy) {
			return err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-wait.Done():
			return context.Cause(wait)
		}
	}
}

var errUnread = refuse(CodeProtocol, "Done came while RDMA Reads were under way")
