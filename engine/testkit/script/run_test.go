// Package script runs TCP packet scripts. A script gives the segments of a peer, the expected replies with their times,
// and the results of the socket. The same script runs against the engine's stack in virtual time, and against the
// kernel of this host in real time, as a reference.
//
// A file contains scripts and macros, one step per line:
//
//	# RFC 5961, 3.2: a RST inside the window, but not at its edge, is challenged
//	script rst-inside-$at
//	for at : 2 1000 edge-1
//	use nosack mss=1000       # settings of the host, before anything happens
//	established               # a macro: def established ... until the next def or script
//	< R $at                   # inject a segment: flags, sequence number, fields
//	> . 1 ack 1               # expect a segment, at once
//	+0.5 quiet 0.2            # half a second later, for 0.2 s: nothing
//	state ESTABLISHED         # a socket call or a question
//
// Flags are letters of FSRPUEWA, "." is ACK, "-" none; PSH is not compared, nor are letters after "~". Sequence numbers
// are relative to the SYN of their side, so the first byte is 1; 1:1001 is a thousand bytes. The content of a byte
// depends on its number and is always compared. A value is a number, a range 5..9, *, or a variable with an offset:
// edge (right edge of the window that the host announced), ack (its last acknowledgement), nxt (the number after its
// last one), or one saved from a timestamp.
//
// Fields: ack N; win N (bytes, scaled when both sides scale); mss N; ws N; sackok; sack A:B ...; ts V; ecr
// V; nots; uto N; accecn A B C; urg N; ecn ce|ect0|ect1|no; opts HEX instead of other options. To inject
// only: badsum, zerosum, badip, reserved, doff N, cut N, src ADDRESS. To expect only: save NAME (the
// timestamp), psh, nopsh, noaccecn. An expected segment without "sack" has no SACK option; other fields that
// are not named are not compared.
//
// "> " is one segment, ">?" one or none, ">*" any number of them. A step may start with the time since the previous
// one: +0.2, or +0.2..0.3. @2 before a step selects another connection, from another port of the peer.
//
// Steps: listen [N], accept, connect, write N [ERRNO], read N|eof|again|ERRNO, shutdown wr|rd|rdwr, close, abort, set
// NAME VALUE, state NAME, error ERRNO|none, info NAME VALUE, quiet T, drain, isn N, fill [SIZE], icmp KIND quote N [mtu
// N].
package script

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"xwarp/tcp/tick"
)

// host is the system under test: the engine's stack or the kernel. Times are relative to the start of the run. Every
// socket call returns at once. An error is the name of its errno, empty for none.
type host interface {
	now() tick.Time
	// send lets the host receive a packet.
	send(packet []byte) error
	// recv returns the next packet that the host sent. It waits until a given time.
	recv(until tick.Time) (packet []byte, at tick.Time, ok bool)
	sleep(until tick.Time)
	// slack returns how much earlier and later than specified a segment due after d may arrive.
	slack(d tick.Duration) (early, late tick.Duration)
	close()
	// shrinks reports whether the host is known to move the right edge of its window left.
	shrinks() bool

	listen(backlog int) string
	accept(flow int, peer netip.AddrPort) string
	connect(flow int, peer netip.AddrPort) string
	write(flow int, b []byte) (int, string)
	read(flow, most int) ([]byte, string) // no bytes and no error: end of stream
	shutdown(flow int, rd, wr bool) string
	closeSocket(flow int, abort bool) string
	set(flow int, name string, v int) error
	state(flow int) string
	lastError(flow int) string
	info(flow int) (map[string]int, error)
}

// Failure says which step of a script a host did not follow.
type Failure struct {
	Script *Script
	Line   int
	Step   string
	Err    error
}

func (f *Failure) Error() string {
	return fmt.Sprintf("%s:%d: %s: %s: %v", f.Script.File, f.Line, f.Script.Name, f.Step, f.Err)
}

// run is the state of one script on one host.
type run struct {
	h      host
	e      ends
	flows  map[int]*flow
	at     tick.Time // time of the previous step
	queue  []arrival // segments that were received and not compared yet
	wrote  map[int]int
	gotten map[int]int
}

type arrival struct {
	s    *seen
	flow int
	at   tick.Time
}

// play runs s on h. A nil result means that h followed the script.
func play(s *Script, h host, e ends) *Failure {
	r := &run{h: h, e: e, flows: map[int]*flow{}, wrote: map[int]int{}, gotten: map[int]int{}}
	for i := range s.steps {
		st := &s.steps[i]
		if err := r.step(st); err != nil {
			return &Failure{s, st.line, st.text, err}
		}
	}
	_, late := h.slack(0)
	if err := r.quiet(r.at.Add(late / 10)); err != nil {
		return &Failure{s, s.Line, "end of the script", err}
	}
	return nil
}

func (r *run) flow(n int) *flow {
	f := r.flows[n]
	if f == nil {
		f = newFlow(n)
		f.shrinks = r.h.shrinks()
		r.flows[n] = f
	}
	return f
}

func (r *run) peer(n int) netip.AddrPort { return netip.AddrPortFrom(r.e.peer, r.flow(n).peer) }

func (r *run) step(s *step) error {
	switch s.verb {
	case ">", ">?", ">*":
		return r.expect(s)
	}
	if s.timed {
		r.at = r.at.Add(s.after[0])
		r.h.sleep(r.at)
	}
	switch s.verb {
	case "quiet":
		d, err := parseDuration(s.args[0])
		if err != nil {
			return err
		}
		return r.quiet(r.at.Add(d))
	case "drain":
		_, late := r.h.slack(0)
		for {
			if err := r.pull(r.at.Add(late / 3)); err != nil || len(r.queue) == 0 {
				return err
			}
			if err := r.learn(); err != nil {
				return err
			}
		}
	}
	err := r.act(s)
	r.at = max(r.at, r.h.now())
	return err
}

// act performs a step that expects no segment of the host.
func (r *run) act(s *step) error {
	f := r.flow(s.flow)
	switch s.verb {
	case "<":
		b, err := f.build(s.pkt, r.e, int(r.h.now()/tick.Time(tick.Millisecond)))
		if err != nil {
			return err
		}
		return r.h.send(b)
	case "icmp":
		return r.icmp(f, s.args)
	case "fill":
		return r.fill(s)
	case "isn":
		n, err := strconv.Atoi(s.args[0])
		*f = flow{host: f.host, peer: f.peer, isn: f.isn.Add(n), win: 65535, x: vars{},
			shrinks: f.shrinks}
		r.wrote[s.flow], r.gotten[s.flow] = 0, 0
		return err
	case "state", "error", "info":
		return r.ask(s)
	}
	return r.call(s)
}

func (r *run) icmp(f *flow, args []string) error {
	if args[1] != "quote" || len(args) == 5 && args[3] != "mtu" || len(args) == 4 {
		return fmt.Errorf("icmp: want KIND quote N [mtu N]")
	}
	at, err := parseValue(args[2])
	if err != nil {
		return err
	}
	n, err := at.at(f.x)
	if err != nil {
		return err
	}
	mtu := 0
	if len(args) == 5 {
		if mtu, err = strconv.Atoi(args[4]); err != nil {
			return err
		}
	}
	b, err := f.icmp(args[0], n, mtu, r.e)
	if err != nil {
		return err
	}
	return r.h.send(b)
}

// pull waits for the next segment of the host and queues it. The queue stays empty if none arrives.
func (r *run) pull(until tick.Time) error {
	for len(r.queue) == 0 {
		b, at, ok := r.h.recv(until)
		if !ok {
			return nil
		}
		s, isTCP, err := decode(b)
		if err != nil {
			return err
		}
		if !isTCP {
			continue
		}
		n := int(s.DstPort) - peerPort
		r.flow(n).observe(s)
		r.queue = append(r.queue, arrival{s, n, at})
	}
	return nil
}

// learn accepts everything in the queue.
func (r *run) learn() error {
	for _, q := range r.queue {
		if err := r.flow(q.flow).learn(q.s); err != nil {
			return err
		}
	}
	r.queue = nil
	return nil
}

func (r *run) quiet(until tick.Time) error {
	if err := r.pull(until); err != nil {
		return err
	}
	if len(r.queue) > 0 {
		q := r.queue[0]
		return fmt.Errorf("got %v after %v ms, expected nothing", q.s,
			q.at.Sub(r.at)/tick.Millisecond)
	}
	r.h.sleep(until)
	r.at = until
	return nil
}

// expect handles ">", ">?" and ">*".
func (r *run) expect(s *step) error {
	early, late := r.h.slack(s.after[1])
	lo, hi := r.at.Add(s.after[0]-early), r.at.Add(s.after[1]+late)
	if s.verb != ">" {
		hi = r.at.Add(s.after[1] + late/2)
	}
	for {
		if err := r.pull(hi); err != nil {
			return err
		}
		if len(r.queue) == 0 {
			if s.verb == ">" {
				return fmt.Errorf("nothing came within %d ms", hi.Sub(r.at)/tick.Millisecond)
			}
			return nil
		}
		q := r.queue[0]
		err := s.pkt.match(q.s, r.flow(q.flow))
		switch {
		case err == nil && q.flow != s.flow:
			err = fmt.Errorf("got %v on connection %d", q.s, q.flow)
		case err == nil && s.timed && (q.at < lo || q.at > hi):
			err = fmt.Errorf("got %v after %.1f ms", q.s, float64(q.at.Sub(r.at))/1e6)
		}
		if err != nil {
			if s.verb == ">" {
				return err
			}
			return nil
		}
		if err := r.flow(q.flow).learn(q.s); err != nil {
			return err
		}
		r.queue = r.queue[1:]
		if s.verb != ">*" {
			r.at = max(r.at, q.at)
			return nil
		}
	}
}

// inject sends the segment that text describes.
func (r *run) inject(f *flow, text string) error {
	p, err := parsePacket(strings.Fields(text))
	if err != nil {
		return err
	}
	b, err := f.build(p, r.e, int(r.h.now()/tick.Time(tick.Millisecond)))
	if err != nil {
		return err
	}
	return r.h.send(b)
}

// maxFillWaits limits how often fill waits for an acknowledgement.
const maxFillWaits = 5

// fill sends bytes until the host's window is closed, in segments of 1000 bytes, or of the size in the step.
func (r *run) fill(s *step) error {
	size := 1000
	if len(s.args) > 0 {
		size, _ = strconv.Atoi(s.args[0])
	}
	f := r.flow(s.flow)
	pos := f.x["ack"]
	for waits := 0; waits < maxFillWaits; {
		n := min(size, f.x["edge"]-pos)
		wait := 100 * tick.Millisecond
		if n > 0 {
			if err := r.inject(f, fmt.Sprintf(". %d:%d ack nxt", pos, pos+n)); err != nil {
				return err
			}
			pos += n
			wait = 0
		} else {
			waits++
		}
		r.at = max(r.at, r.h.now())
		if err := r.pull(r.at.Add(wait)); err != nil {
			return err
		}
		if err := r.learn(); err != nil {
			return err
		}
		if f.x["edge"] <= f.x["ack"] {
			return nil
		}
	}
	return fmt.Errorf("the window does not shut")
}
