package tcp

// State is the state of a connection (RFC 9293, 3.3.2). LISTEN is a Listener, not a Conn.
type State uint8

const (
	Closed State = iota
	SynSent
	SynReceived
	Established
	FinWait1
	FinWait2
	CloseWait
	Closing
	LastAck
	TimeWait
	states
)

// String returns the name that RFC 9293 uses.
func (s State) String() string {
	names := [states]string{"CLOSED", "SYN-SENT", "SYN-RECEIVED", "ESTABLISHED", "FIN-WAIT-1",
		"FIN-WAIT-2", "CLOSE-WAIT", "CLOSING", "LAST-ACK", "TIME-WAIT"}
	if s < states {
		return names[s]
	}
	return "?"
}

// receives reports whether the peer may still send bytes.
func (s State) receives() bool { return s >= SynReceived && s <= FinWait2 }

// sends reports whether bytes may still be sent, or sent again.
func (s State) sends() bool { return s >= Established && s <= LastAck && s != FinWait2 }

// trigger is an event that moves a connection from one state to another.
type trigger uint8

const (
	connect         trigger = iota // Connect: our SYN must be sent
	peerSYN                        // the peer's SYN arrived, and the peer does not acknowledge ours yet
	synAcknowledged                // both sides have the other's SYN
	shutdown                       // our FIN must be sent, after the bytes of the Source
	peerFIN                        // RCV.NXT passed the peer's FIN
	finAcknowledged                // the peer acknowledged our FIN
	ended                          // the end for another reason: RST, Abort, a timer, an ICMP error, …
	triggers
)

// transition is one cell of the table. The zero value refuses the trigger.
type transition struct {
	ok   bool
	next State
}

func to(s State) transition { return transition{true, s} }

// transitions is figure 5 of RFC 9293 without LISTEN. In a state without an entry for a trigger, the trigger changes
// nothing. Shutdown in SYN-RECEIVED queues the FIN, and Conn.established then enters FIN-WAIT-1.
var transitions = [states][triggers]transition{
	Closed: {connect: to(SynSent), peerSYN: to(SynReceived)},
	SynSent: {peerSYN: to(SynReceived), synAcknowledged: to(Established), shutdown: to(Closed),
		ended: to(Closed)},
	SynReceived: {synAcknowledged: to(Established), shutdown: to(SynReceived), ended: to(Closed)},
	Established: {shutdown: to(FinWait1), peerFIN: to(CloseWait), ended: to(Closed)},
	FinWait1:    {peerFIN: to(Closing), finAcknowledged: to(FinWait2), ended: to(Closed)},
	FinWait2:    {peerFIN: to(TimeWait), ended: to(Closed)},
	CloseWait:   {shutdown: to(LastAck), ended: to(Closed)},
	Closing:     {finAcknowledged: to(TimeWait), ended: to(Closed)},
	LastAck:     {finAcknowledged: to(Closed), ended: to(Closed)},
	TimeWait:    {ended: to(Closed)},
}

// enter moves c to the state that transitions has for t, and reports whether it has one. Nothing else assigns c.state.
// The caller sets the timers and counters of the new state.
func (c *Conn) enter(t trigger) bool {
	x := transitions[c.state][t]
	if x.ok {
		c.state = x.next
	}
	return x.ok
}

// Events is a set of things that happened since the last call of Conn.Events.
type Events uint32

const (
	// Connected: the state became ESTABLISHED, or a later one when a FIN arrived with the handshake.
	Connected Events = 1 << iota
	// Acked: SND.UNA moved; bytes before SndUna may be released.
	Acked
	// Received: RCV.NXT moved over bytes.
	Received
	// PeerClosed: RCV.NXT passed the peer's FIN; no byte follows.
	PeerClosed
	// FINAcked: the peer acknowledged everything including our FIN.
	FINAcked
	// EMSSChanged: EMSS has a new value.
	EMSSChanged
	// WindowOpen: the peer's window blocked the Source, and has room again.
	WindowOpen
	// Urgent: the peer announced urgent data (RFC 9293, 3.8.5); the bytes stay in the stream.
	Urgent
	// SoftError: an ICMP error arrived that does not end the connection; see Conn.SoftError.
	SoftError
	// Ended: the state became CLOSED; see Conn.Cause. Poll may still return a RST.
	Ended
)

// Cause is the reason why a connection ended.
type Cause uint8

const (
	CauseNone        Cause = iota
	CauseClosed            // both FINs were exchanged, and TIME-WAIT, if this side was in it, is over
	CauseRefused           // RST in answer to our SYN, or RST or a new SYN in answer to our SYN-ACK
	CauseReset             // RST from the peer
	CauseAborted           // this side ended it: Abort, Shutdown in SYN-SENT, Config.Linger, or a RST to the peer
	CauseTimeout           // user timeout, Config.ZeroWindowTimeout, or unanswered SYNs (RFC 9293, 3.8.3; RFC 5482)
	CauseKeepalive         // no answer to keepalive probes
	CauseUnreachable       // ICMP error in answer to our SYN
	CauseOrphan            // FIN-WAIT-2 lasted too long after Detach
)

var causeTexts = [...]string{"not ended", "closed by both sides",
	"connection refused: the peer answered the SYN with RST",
	"connection reset by the peer", "aborted locally",
	"timed out: the peer acknowledged nothing within the user timeout",
	"timed out: no answer to keepalive probes",
	"host or port unreachable: an ICMP error answered the SYN",
	"gave up waiting for the peer's FIN"}

// String describes the cause for an engineer.
func (c Cause) String() string {
	if int(c) < len(causeTexts) {
		return causeTexts[c]
	}
	return "?"
}

// Error makes a Cause other than CauseNone and CauseClosed usable as an error.
func (c Cause) Error() string { return "tcp: " + c.String() }
