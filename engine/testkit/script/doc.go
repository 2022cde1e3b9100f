// Package script runs TCP packet scripts: what a peer sends, what must come back and when, and what the
// socket says. The same script runs against the engine's stack in virtual time, and against the kernel of
// this host in real time, as the oracle.
//
// A file holds scripts and macros, one step per line:
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
// Flags are letters of FSRPUEWA, "." is ACK, "-" none; PSH is not compared, nor are letters after "~".
// Numbers are relative to the SYN of their side, so the first byte is 1; 1:1001 are a thousand bytes.
// Bytes are a function of their number and always compared. A value is a number, a range 5..9, *, or a
// variable with an offset: edge (right edge of the window the host announced), ack (its last
// acknowledgement), nxt (after the last number it sent), or one saved from a timestamp.
//
// Fields: ack N; win N (bytes, scaled when both sides scale); mss N; ws N; sackok; sack A:B ...; ts V; ecr
// V; nots; uto N; accecn A B C; urg N; ecn ce|ect0|ect1|no; opts HEX instead of other options. To inject
// only: badsum, zerosum, badip, reserved, doff N, cut N, src ADDRESS. To expect only: save NAME (the
// timestamp), psh, nopsh, noaccecn. An expected segment without "sack" has no SACK option; other fields that
// are not named are not compared.
//
// "> " is one segment, ">?" one or none, ">*" any number of them. A step may begin with the time since the
// one before it: +0.2, or +0.2..0.3. @2 before a step names another connection, from another port of the
// peer.
//
// Steps: listen [N], accept, connect, write N [ERRNO], read N|eof|again|ERRNO, shutdown wr|rd|rdwr, close,
// abort, set NAME VALUE, state NAME, error ERRNO|none, info NAME VALUE, quiet T, drain, isn N, fill, icmp
// KIND quote N [mtu N].
package script
