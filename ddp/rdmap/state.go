package rdmap

import "fmt"

// State is the state of a queue pair, with the names of the RDMAC verbs.
type State uint8

// The states.
const (
	Idle       State = iota // no stream; receives may be posted
	RTR                     // responder: MPA Reply sent, silent until the first FPDU came
	RTS                     // full operation
	Closing                 // a FIN was sent or received, nothing is under way
	Terminated              // a Terminate was made or received; the stream is being closed
	Errored                 // everything is flushed
	states
)

func (s State) String() string {
	names := [states]string{"IDLE", "RTR", "RTS", "CLOSING", "TERMINATE", "ERROR"}
	if s < states {
		return names[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// Event is an event of a queue pair.
type Event uint8

// The events.
const (
	EvStart         Event = iota // MPA done, may send at once
	EvStartWaiting               // MPA done, must receive an FPDU first
	EvFPDU                       // a valid FPDU is delivered
	EvCloseIdle                  // consumer closes, nothing is under way
	EvCloseBusy                  // consumer closes, work is under way
	EvFINClean                   // FIN at an FPDU's end, nothing is under way
	EvFINDirty                   // FIN with work under way; for a FIN inside an FPDU see QP.PeerClosed
	EvLocalError                 // error found here
	EvPeerTerminate              // Terminate delivered
	EvLost                       // RST, TCP gave up, or the close timer ran out
	EvClosed                     // both FINs are acknowledged
	EvAbort                      // consumer moves the queue pair to ERROR
	events
)

// Action is a set of actions that a transition asks of the owner of the TCP connection.
type Action uint8

// The actions. The first three are returned by QP.Actions.
const (
	ActFIN   Action = 1 << iota // close the sending side, after the ULPDUs that NextULPDU still returns
	ActRST                      // abort the connection
	ActTimer                    // start the close timer; call Lost when it runs out

	actTerminate   // make a Terminate
	actFlush       // complete everything with WR_FLUSH_ERR
	actReleaseKept // unacknowledged bytes are not retransmitted from registered memory

	actOwner = ActFIN | ActRST | ActTimer
)

// transition is one cell of the state table. The zero value ignores the event.
type transition struct {
	ok   bool
	next State
	act  Action
}

func to(s State, a Action) transition { return transition{true, s, a} }

const (
	graceful = ActFIN | ActTimer
	actEnd   = actFlush | actReleaseKept
)

// running is the row of a stream in full operation; a first FPDU moves it from RTR to RTS. The consumer sees the end of
// the stream at once, so each event that ends it flushes all work.
var running = [events]transition{
	EvFPDU:          to(RTS, 0),
	EvCloseIdle:     to(Closing, graceful|actFlush),
	EvCloseBusy:     to(Errored, ActRST|actEnd),
	EvFINClean:      to(Closing, graceful|actFlush),
	EvFINDirty:      to(Errored, ActRST|actEnd),
	EvLocalError:    to(Terminated, graceful|actTerminate|actFlush),
	EvPeerTerminate: to(Terminated, graceful|actFlush),
	EvLost:          to(Errored, actEnd),
	EvClosed:        to(Errored, actEnd),
	EvAbort:         to(Errored, ActRST|actEnd),
}

// table is the state machine of a queue pair, with the states of the RDMAC verbs (RFC 5040, 6 and 7). A pair
// of state and event that is missing here is ignored.
var table = [states][events]transition{
	Idle: {
		EvStart:        to(RTS, 0),
		EvStartWaiting: to(RTR, 0),
		EvLost:         to(Errored, actEnd),
		EvAbort:        to(Errored, actEnd),
	},
	RTR: running,
	RTS: running,
	Closing: {
		// No Terminate can follow our FIN.
		EvFPDU:          to(Errored, ActRST|actEnd),
		EvCloseIdle:     to(Closing, 0),
		EvFINClean:      to(Closing, 0),
		EvFINDirty:      to(Errored, ActRST|actEnd),
		EvLocalError:    to(Errored, ActRST|actEnd),
		EvPeerTerminate: to(Errored, ActRST|actEnd),
		EvLost:          to(Errored, actEnd),
		EvClosed:        to(Idle, actEnd),
		EvAbort:         to(Errored, ActRST|actEnd),
	},
	Terminated: {
		// What still arrives is dropped (RFC 5041, 7.1).
		EvFPDU:          to(Terminated, 0),
		EvCloseIdle:     to(Terminated, 0),
		EvCloseBusy:     to(Terminated, 0),
		EvFINClean:      to(Terminated, 0),
		EvFINDirty:      to(Terminated, 0),
		EvLocalError:    to(Terminated, 0),
		EvPeerTerminate: to(Terminated, 0),
		EvLost:          to(Errored, actEnd),
		EvClosed:        to(Errored, actEnd),
		EvAbort:         to(Errored, ActRST|actEnd),
	},
	Errored: {
		EvFPDU:          to(Errored, 0),
		EvCloseIdle:     to(Errored, 0),
		EvCloseBusy:     to(Errored, 0),
		EvFINClean:      to(Errored, 0),
		EvFINDirty:      to(Errored, 0),
		EvLocalError:    to(Errored, 0),
		EvPeerTerminate: to(Errored, 0),
		EvLost:          to(Errored, 0),
		EvClosed:        to(Errored, 0),
		EvAbort:         to(Errored, 0),
	},
}
