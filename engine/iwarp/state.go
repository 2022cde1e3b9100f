package iwarp

import "xwarp/tcp/tick"

// A connection has three state machines, one above the other, each with a table: tcp.Conn (RFC 9293, 3.3.2), Conn here,
// and rdmap.QP (the RDMAC verbs). The state of Conn determines the meaning of the stream's bytes, and which errors end
// it:
//
//	 start-up frames                  FPDUs              ignored
//	 starting ----agreed--------> open ----broken, ...--------> ending --ended--> closed
//	     |'------cannotStart----> terminating --refused, ...----> ^
//	     '-------refused, peerFIN, disconnect, abort, late--------'
//
// Ended leads to closed from every state. Each other variable of the life cycle is set in one place:
//
//	state       move, by the table (and Abandon, if a panic prevents it)
//	notified    notify: calls made to the Handler, each once and in order
//	finPending  move sets it, Settle clears it when the last start-up frame was sent
//	framed      startFraming: the Sender and the Receiver are in use from then on
//	err         setErr: keeps the first cause
//	startAt, closeAt, restAt, recvAt, reportAt  the timers, see timers.go

// state is the stage of a Conn.
type state uint8

const (
	starting    state = iota // MPA's start-up exchange; a responder's consumer decides
	open                     // FPDUs both ways; the queue pair decides what may be sent
	terminating              // the queue pair could not start: a Terminate is the only FPDU to send, see terminate.go
	ending                   // FIN or RST is sent; received bytes are ignored
	closed                   // the TCP connection has ended; Handler.Closed was called
	states
)

// event is an event of a Conn.
type event uint8

const (
	agreed      event = iota // the start-up exchange is done, and the queue pair has started
	cannotStart              // like agreed, but the queue pair cannot start; the peer supports Terminate (RFC 6581)
	refused                  // an invalid start-up frame, a consumer's reject, or the end of terminating
	broken                   // an invalid FPDU or request, or a local error
	peerFIN                  // the peer's FIN arrived in order
	disconnect               // the consumer closes
	abort                    // the consumer aborts
	late                     // the start-up, the initiator's first FPDU or bytes that TCP lost took too long
	closeLate                // the peer did not answer a Terminate or a FIN
	ended                    // the TCP connection has ended
	events
)

// action is the set of actions of a transition.
type action uint8

const (
	finLater action = 1 << iota // at the next Settle: FIN after the last start-up frame, and the close timer
	release                     // return the Receiver's memory to the pool
	fin                         // FIN after the bytes that Next still returns
	rst
)

// transition is one cell of the table. The zero value ignores the event.
type transition struct {
	ok   bool
	next state
	act  action
}

func to(s state, a action) transition { return transition{true, s, a} }

var table = [states][events]transition{
	starting: {
		agreed:      to(open, 0),
		cannotStart: to(terminating, 0),
		refused:     to(ending, finLater),
		peerFIN:     to(ending, fin),
		disconnect:  to(ending, rst),
		abort:       to(ending, rst),
		late:        to(ending, rst),
		ended:       to(closed, 0),
	},
	open: { // peerFIN and disconnect are events of the queue pair, too; Settle runs its actions
		broken:    to(ending, release),
		peerFIN:   to(open, fin),
		abort:     to(ending, release|rst),
		late:      to(ending, release|rst),
		closeLate: to(ending, release|rst),
		ended:     to(closed, release),
	},
	terminating: {
		refused: to(ending, release|finLater),
		peerFIN: to(terminating, fin),
		abort:   to(ending, release|rst),
		late:    to(ending, release|rst),
		ended:   to(closed, release),
	},
	ending: {
		peerFIN:   to(ending, fin),
		abort:     to(ending, rst),
		late:      to(ending, rst),
		closeLate: to(ending, rst),
		ended:     to(closed, 0),
	},
	closed: {},
}

// move makes the table's transition for ev and returns its actions. All but fin and rst have been performed: for these
// the caller passes the result to shut.
func (c *Conn) move(ev event) action {
	t := table[c.state][ev]
	if !t.ok {
		return 0
	}
	c.state = t.next
	if t.act&release != 0 {
		c.rcv.Release()
		c.restAt, c.recvAt, c.reportAt = tick.Never, tick.Never, tick.Never
	}
	if t.act&finLater != 0 {
		c.finPending = true
		c.tr.Schedule()
	}
	return t.act
}

// shut requests the FIN or RST in a from the transport.
func (c *Conn) shut(a action, now tick.Time) {
	switch {
	case c.tr == nil: // the TCP handshake has not started
	case a&rst != 0:
		c.tr.Abort(now)
	case a&fin != 0:
		c.tr.Shutdown(now)
	}
}

// notice is the latest notification of the Handler. Closed is not one of them.
type notice uint8

const (
	notifiedNothing notice = iota
	notifiedRequest        // responder only
	notifiedUp
	notifiedDown
)

// notify reports whether n is to be passed to the Handler, and records that it was. It returns true at most once for
// each n, and for notifiedDown only after notifiedUp.
func (c *Conn) notify(n notice) bool {
	if c.notified >= n || n == notifiedDown && c.notified != notifiedUp {
		return false
	}
	c.notified = n
	return true
}
