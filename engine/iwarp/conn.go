// Package iwarp implements one iWARP connection between TCP and the verbs: MPA's start-up, then framing, placement and
// the queue pair. It has no clock and no I/O. A Transport carries its bytes: the engine's own TCP, which may offer them
// out of order, or a kernel socket, which never does.
package iwarp

import (
	"cmp"
	"fmt"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/mpa"
	"xwarp/mpa/startup"
	"xwarp/mpa/ulpdu"
	"xwarp/tcp/checksum"
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// Transport is the connection below. Its methods are called on the thread that calls the Conn.
type Transport interface {
	Schedule()              // the Conn has something to send
	Shutdown(now tick.Time) // send FIN once Next has nothing left
	Abort(now tick.Time)    // send RST
	EMSS() int              // maximum payload of a segment in bytes
	// TakeBack reports that Fill could not write the bytes at from and later. The transport must not send any of them,
	// and must call Next again.
	TakeBack(from seq.Num)
	// Break reports that Fill cannot write bytes of which the peer may have received a part. The transport must reset
	// the connection.
	Break()
}

// Handler receives the events of a Conn, on the thread that calls the Conn. Closed is the last call.
type Handler interface {
	// Request passes the peer's MPA Request to the responder's consumer, which answers now or later with Accept or
	// Reject.
	Request(c *Conn, r *startup.Request)
	// Established reports that the queue pair may be used.
	Established(c *Conn, p *startup.Params)
	// Disconnected reports that the queue pair left RTS. Posted requests have been completed or flushed.
	Disconnected(c *Conn, err error)
	// TakePosted moves posted work requests into the queue pair. It is called before each round of transmission.
	TakePosted()
	// Closed reports that the connection has ended. err is nil after a graceful close.
	Closed(c *Conn, err error)
}

// Config configures a Conn.
type Config struct {
	Responder bool
	Startup   startup.Config
	QP        *rdmap.QP // the initiator's; a responder passes its own to Accept
	Pool      *mpa.Pool
	Handler   Handler
	Pack      bool // send several small FPDUs in one segment
	// Reliable says that the transport cannot retransmit data that MPA refused, so the first CRC error ends the
	// connection. AnyCRCError requests the same of other transports.
	Reliable, AnyCRCError bool
	// Window is the maximum number of bytes in flight to this end [DefaultWindow].
	Window int
	// StartupTimeout limits the MPA exchange, from the call of Begin [10 s]. CloseTimeout limits the exchange of
	// Terminates or FINs [5 s].
	StartupTimeout, CloseTimeout tick.Duration
	// FirstFPDUTimeout is how long a responder waits for the initiator's first FPDU [5 min], or tick.Forever. Until
	// then it must not send. If that FPDU is an RTR message, which MPA itself sends, StartupTimeout applies instead.
	FirstFPDUTimeout tick.Duration
	// FPDUTimeout is how long received bytes may wait for the rest of their FPDU, or for lost bytes before them [5
	// min], or tick.Forever.
	FPDUTimeout tick.Duration
	// ReceiveTimeout is how long a message may wait until a receive is posted for it [10 s]. It applies if the queue
	// pair lets messages wait, unless the peer decides how long its messages wait.
	ReceiveTimeout tick.Duration
}

// exchange is a startup.Initiator or a startup.Responder.
type exchange interface {
	Input(b []byte) (int, *ulpdu.Error)
	Output() []byte
	Stage() startup.Stage
	Params() *startup.Params
	Closed(why string) *ulpdu.Error
}

// Conn is one iWARP connection. The zero value is not usable before Init. state.go describes its states.
type Conn struct {
	cfg      Config
	tr       Transport
	state    state
	notified notice
	err      error

	ini      startup.Initiator
	rsp      startup.Responder
	exchange exchange // &ini or &rsp
	out      startupFrames
	params   *startup.Params

	snd       mpa.Sender
	rcv       mpa.Receiver
	framed    bool // snd and rcv are in use
	qp        *rdmap.QP
	terminate *terminateOnly // replaces qp if that cannot start

	sndNxt  seq.Num // next byte that Next will freeze
	rcvNxt  seq.Num // everything before it has arrived
	filled  seq.Num // Fill wrote everything before it
	filling bool    // Fill is writing the bytes at fillAt and later
	fillAt  seq.Num
	ignored uint64 // bytes received after the end

	finWaits   bool      // process the peer's FIN once the receiver no longer waits
	finPending bool      // send FIN as soon as the last start-up frame was sent
	awaitFirst bool      // the next Settle starts the wait for the initiator's first FPDU
	startAt    tick.Time // deadline of the start-up, or of the initiator's first FPDU
	closeAt    tick.Time // deadline of the answer to a Terminate or FIN
	restAt     tick.Time // deadline for completing the FPDUs before stream offset restTo
	restTo     int64
	recvAt     tick.Time // deadline for posting a receive for message recvOf
	reportAt   tick.Time // time to send a held Report
	recvOf     ddp.MSN
}

// Init prepares c for a transport. The error says what is wrong with cfg.
func (c *Conn) Init(cfg Config) error {
	cfg.Window = cmp.Or(cfg.Window, DefaultWindow)
	cfg.StartupTimeout = cmp.Or(cfg.StartupTimeout, DefaultStartupTimeout)
	cfg.FirstFPDUTimeout = cmp.Or(cfg.FirstFPDUTimeout, DefaultFirstFPDUTimeout)
	cfg.FPDUTimeout = cmp.Or(cfg.FPDUTimeout, DefaultFPDUTimeout)
	cfg.ReceiveTimeout = cmp.Or(cfg.ReceiveTimeout, DefaultReceiveTimeout)
	cfg.CloseTimeout = cmp.Or(cfg.CloseTimeout, DefaultCloseTimeout)
	if cfg.Pool == nil || cfg.Handler == nil || (cfg.QP == nil && !cfg.Responder) {
		return fmt.Errorf("iwarp: pool, handler or queue pair is missing")
	}
	*c = Conn{cfg: cfg, qp: cfg.QP, startAt: tick.Never, closeAt: tick.Never,
		restAt: tick.Never, recvAt: tick.Never, reportAt: tick.Never}
	if cfg.Responder {
		c.exchange = &c.rsp
		return c.rsp.Init(cfg.Startup)
	}
	c.exchange = &c.ini
	return c.ini.Init(cfg.Startup)
}

// Attach sets the transport of c before Begin, so that c can be aborted.
func (c *Conn) Attach(tr Transport) { c.tr = tr }

// Begin sets the transport of c and the positions in both streams: the next byte to send and the next to arrive.
func (c *Conn) Begin(tr Transport, snd, rcv seq.Num, now tick.Time) {
	c.tr, c.sndNxt, c.rcvNxt, c.filled = tr, snd, rcv, snd
	c.startAt = now.Add(c.cfg.StartupTimeout)
	c.pullStartup()
}

// Schedule makes the transport call Next again. Without a transport it does nothing.
func (c *Conn) Schedule() {
	if c.tr != nil {
		c.tr.Schedule()
	}
}

// Handler returns Config.Handler.
func (c *Conn) Handler() Handler { return c.cfg.Handler }

// Params returns the negotiated MPA parameters, or nil before the agreement.
func (c *Conn) Params() *startup.Params { return c.params }

// Stats returns the receiver's counters.
func (c *Conn) Stats() mpa.ReceiverStats {
	n := c.rcv.Stats()
	n.AfterEnd += c.ignored
	return n
}

// Audit checks that each byte before to, which TCP acknowledges, has been placed or is held. Outside full operation it
// checks nothing.
func (c *Conn) Audit(to seq.Num) error {
	if c.state != open {
		return nil
	}
	return c.rcv.Audit(to)
}

// Err returns the first error of the connection, which ends it. It is nil before there is one, and after a graceful
// close.
func (c *Conn) Err() error { return c.err }

// Retry returns what an initiator should change in another attempt after Closed, or startup.RetryNone.
func (c *Conn) Retry() startup.Retry { return c.ini.Retry() }

// Next implements tcp.Source: it returns the start-up frames one by one, then FPDUs.
func (c *Conn) Next(room int) (n int, more bool) {
	if c.state == closed {
		return 0, false
	}
	if n, more := c.out.next(); n > 0 {
		c.sndNxt = c.sndNxt.Add(n)
		return n, more || c.framed
	}
	if !c.framed {
		return 0, false
	}
	n, more = c.snd.Next(room)
	c.sndNxt = c.sndNxt.Add(n)
	return n, more
}

// NextRun implements tcp.RunSource. Before full operation, until the start-up frames are acknowledged, and after the
// end of the connection, it takes no run and reports that TCP should call Next.
func (c *Conn) NextRun(size, most int) (n int, more bool) {
	if !c.framed || c.state == closed || !c.out.empty() {
		return 0, true
	}
	n, more = c.snd.NextRun(size, most)
	c.sndNxt = c.sndNxt.Add(n * size)
	return n, more
}

// Fill writes the bytes r of the outgoing stream to dst; see stack.Upper.
func (c *Conn) Fill(r seq.Range, dst []byte) (sum uint64, summed bool) {
	n := 0
	if !c.out.empty() {
		n = c.out.fill(r, dst)
		r.Start, dst = r.Start.Add(n), dst[n:]
	}
	if c.framed && !r.Empty() {
		c.filling, c.fillAt = true, r.Start
		sum, summed, _ = c.snd.FillSum(r, dst)
		c.filling = false
	}
	c.filled = seq.Max(c.filled, r.End)
	return sum, summed && n == 0
}

// Acked reports that the peer acknowledged everything before to, and releases these bytes.
func (c *Conn) Acked(to seq.Num) {
	c.out.acked(to)
	if c.framed && c.state != closed && c.out.empty() {
		c.snd.Acked(to)
	}
}

// Offer accepts received bytes; see stack.Upper. After an error all of them count as received: the stream has ended,
// and the peer's TCP need not retransmit unused data, so that its FIN can arrive.
func (c *Conn) Offer(at seq.Num, pieces [][]byte, n int, crc checksum.Known) (kept int) {
	switch c.state {
	case open:
		kept, err := c.rcv.Offer(at, pieces, n, crc)
		if err != nil {
			c.fail(err)
			return n
		}
		return kept
	case terminating:
		kept, err := c.rcv.Offer(at, pieces, n, crc)
		if c.endTerminating(err); err != nil {
			return n
		}
		return kept
	case starting:
		if at != c.rcvNxt {
			return 0 // start-up frames are processed in order only: TCP retransmits data after a gap
		}
		return c.startup(at, pieces, n)
	}
	c.ignored += uint64(n)
	return n
}

// WantsCRC reports whether Offer would use the CRC32C of the n bytes at sequence number at; see mpa.Receiver.WantsCRC.
func (c *Conn) WantsCRC(at seq.Num, pieces [][]byte, n int) bool {
	return c.state == open && c.rcv.WantsCRC(at, pieces, n)
}

// Advance reports that everything before to has arrived.
func (c *Conn) Advance(to seq.Num) {
	c.rcvNxt = to
	switch c.state {
	case open:
		if err := c.rcv.Advance(to); err != nil {
			c.fail(err)
		}
	case terminating:
		c.endTerminating(c.rcv.Advance(to))
	}
}

// Space returns the window to announce in bytes.
func (c *Conn) Space() int {
	if c.state != open {
		return c.cfg.Window
	}
	return min(c.cfg.Window, max(c.rcv.Space(), MinWindow))
}

// EMSSChanged reports that the maximum payload of a segment has changed.
func (c *Conn) EMSSChanged() {
	if c.framed {
		c.snd.SetEMSS(c.tr.EMSS())
	}
}
