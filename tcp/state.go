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
)

var stateNames = [...]string{"CLOSED", "SYN-SENT", "SYN-RECEIVED", "ESTABLISHED", "FIN-WAIT-1",
	"FIN-WAIT-2",
	"CLOSE-WAIT", "CLOSING", "LAST-ACK", "TIME-WAIT"}

// String is the name RFC 9293 uses.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "?"
}

// receives reports whether the peer may still send octets.
func (s State) receives() bool { return s >= SynReceived && s <= FinWait2 }

// sends reports whether octets may still be sent or sent again.
func (s State) sends() bool { return s >= Established && s <= LastAck && s != FinWait2 }

// Events says what happened since it was last read.
type Events uint32

const (
	// Connected: the state became ESTABLISHED (or later, when a FIN came with the handshake).
	Connected Events = 1 << iota
	// Acked: SND.UNA moved; octets before SndUna may be released.
	Acked
	// Received: RCV.NXT moved over octets.
	Received
	// PeerClosed: RCV.NXT passed the peer's FIN; no octet follows.
	PeerClosed
	// FINAcked: the peer acknowledged everything including our FIN.
	FINAcked
	// EMSSChanged: EMSS has a new value.
	EMSSChanged
	// WindowOpen: the peer's window, closed before, lets octets through again.
	WindowOpen
	// Urgent: the peer announced urgent data (RFC 9293, 3.8.5); the octets stay in the stream.
	Urgent
	// SoftError: an ICMP error came that does not end the connection; see Conn.SoftError.
	SoftError
	// Ended: the state became CLOSED; Conn.Cause says why. Poll may still have a RST to send.
	Ended
)

// Cause says why a connection ended.
type Cause uint8

const (
	CauseNone        Cause = iota
	CauseClosed            // both FINs were exchanged and TIME-WAIT, when ours, is over
	CauseRefused           // RST in answer to our SYN
	CauseReset             // RST from the peer
	CauseAborted           // Abort was called, or linger ran out
	CauseTimeout           // user timeout or too many retransmissions (RFC 9293, 3.8.3; RFC 5482)
	CauseKeepalive         // no answer to keepalive probes
	CauseUnreachable       // ICMP error in answer to our SYN
	CauseOrphan            // FIN-WAIT-2 lasted too long after the layer above was gone
)

var causeTexts = [...]string{"not ended", "closed by both sides",
	"connection refused: the peer answered the SYN with RST",
	"connection reset by the peer", "aborted locally",
	"timed out: the peer acknowledged nothing within the user timeout",
	"timed out: no answer to keepalive probes",
	"host or port unreachable: an ICMP error answered the SYN",
	"gave up waiting for the peer's FIN"}

// String says the cause for an engineer.
func (c Cause) String() string {
	if int(c) < len(causeTexts) {
		return causeTexts[c]
	}
	return "?"
}

// Error makes a Cause other than CauseNone and CauseClosed usable as an error.
func (c Cause) Error() string { return "tcp: " + c.String() }
