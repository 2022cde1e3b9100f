package iwarp

import "xwarp/tcp/tick"

// A connection has three state machines, one above the other, each with its table: tcp.Conn (RFC 9293,
// 3.3.2), Conn here, and rdmap.QP (the RDMAC verbs). Conn's says what the bytes of the stream are, and whose
// errors end it:
//
//	 start-up frames                  FPDUs              nobody
//	 starting ----agreed--------> open ----broken, ...--------> ending --ended--> closed
//	     |'------cannotStart----> terminating --refused, ...----> ^
//	     '-------refused, peerFIN, disconnect, abort, late--------'
//
// Ended leads to closed from everywhere. What else a Conn remembers of its life has one owner each:
//
//	state       move, by the table (and Abandon, when a panic keeps that from being done)
//	notified    notify: what the Handler knows, each call once and in order
//	finPending  move sets it, Settle clears it when the last start-up frame was sent
//	framed      startFraming: the Sender and the Receiver are in use from then on
//	err         setErr: the first cause counts
//	startAt, closeAt, restAt, recvAt, reportAt  the timers, see timers.go

// state is how far a Conn is.
type state uint8

const (
	starting    state = iota // MPA's start-up exchange; a responder's consumer decides
	open                     // FPDUs both ways; what may be sent is the queue pair's to say
	terminating              // the queue pair could not start: nothing but a Terminate is sent, see terminate.go
	ending                   // FIN or RST is on its way; what arrives does not count
	closed                   // TCP's connection is gone, Handler.Closed was called
	states
)

// event is what happens to a Conn.
type event uint8

const (
	agreed      event = iota // the start-up exchange is done, and the queue pair has started
	cannotStart              // it is done, the queue pair cannot start, and the peer takes a Terminate (RFC 6581, 9.3)
	refused                  // a wrong start-up frame, a consumer's no, or the end of terminating
	broken                   // an FPDU is wrong, or what it asks for
	peerFIN                  // the peer's FIN is in order
	disconnect               // the consumer closes
	abort                    // the consumer aborts
	late                     // the start-up, the initiator's first FPDU or what TCP has lost took too long
	closeLate                // the peer did not answer a Terminate or a FIN
	ended                    // TCP's connection is gone
	events
)

// action is a set of things that a transition asks for.
type action uint8

const (
	finLater action = 1 << iota // FIN behind the last start-up frame, and the close timer: at the next Settle
	release                     // the Receiver's memory goes back to the pool
	fin                         // FIN behind what Next still gives
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
	open: { // peerFIN and disconnect are events of the queue pair, whose actions Settle takes
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

// move does what the table says for ev, but for fin and rst, which it returns for shut.
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
		c.tr.Wake()
	}
	return t.act
}

// shut asks the transport for the FIN or the RST in a.
func (c *Conn) shut(a action, now tick.Time) {
	switch {
	case c.tr == nil: // TCP's handshake has not begun
	case a&rst != 0:
		c.tr.Abort(now)
	case a&fin != 0:
		c.tr.Shutdown(now)
	}
}

// notice is the last thing that the Handler was told, before Closed.
type notice uint8

const (
	notifiedNothing notice = iota
	notifiedRequest        // a responder's
	notifiedUp
	notifiedDown
)

// notify reports whether it is time for n, which it is once.
func (c *Conn) notify(n notice) bool {
	if c.notified >= n || n == notifiedDown && c.notified != notifiedUp {
		return false
	}
	c.notified = n
	return true
}
