package sim

import (
	"encoding/binary"
	"fmt"
	"strings"

	"xwarp/mpa"
	"xwarp/mpa/ulpdu"
	"xwarp/tcp"
	"xwarp/tcp/seq"
)

// fpdus follows the FPDUs of one direction of a connection, as its sender sends them. It knows only the bytes that left
// the sender: a start-up frame, and FPDUs behind it.
type fpdus struct {
	next   seq.Num            // sequence number of the first byte that is not read yet
	early  map[seq.Num][]byte // segments whose predecessors never left the host
	head   []byte             // of the start-up frame or FPDU that begins, as far as it has been sent
	rest   int                // bytes up to its end, once they are known
	at     uint64             // where the FPDU begins in the stream of FPDUs
	framed bool               // the start-up frame is over
	wants  bool               // the start-up frame asks for markers in the other direction
	ends   []seq.Num          // ends of complete FPDUs that the receiver has not acknowledged
	whole  uint64             // number of complete FPDUs that it has acknowledged
}

const (
	startupLen = 20 // bytes of an MPA Request or Reply without private data (RFC 5044, 7.1)
	wantsAt    = 16 // offset of the flags in such a frame
	wantsBit   = 0x80
)

// sent reads a segment. marked says whether the FPDUs have markers.
func (f *fpdus) sent(at seq.Num, b []byte, marked bool) {
	if at.LessEq(f.next) {
		f.read(b[min(len(b), f.next.Diff(at)):], marked)
	} else {
		if f.early == nil {
			f.early = map[seq.Num][]byte{}
		}
		f.early[at] = append([]byte(nil), b...)
	}
	for again := len(f.early) > 0; again; {
		again = false
		for at, b := range f.early {
			if at.LessEq(f.next) {
				delete(f.early, at)
				f.read(b[min(len(b), f.next.Diff(at)):], marked)
				again = true
			}
		}
	}
}

// read reads the next bytes.
func (f *fpdus) read(b []byte, marked bool) {
	for len(b) > 0 {
		if f.rest == 0 && !f.begin(&b, marked) {
			return
		}
		n := min(f.rest, len(b))
		b = b[n:]
		f.next = f.next.Add(n)
		if f.rest -= n; f.rest == 0 && f.framed {
			f.ends = append(f.ends, f.next)
		}
		f.framed = f.framed || f.rest == 0
	}
}

// begin reads the header of a start-up frame or FPDU. It returns false if the rest of it has not been sent.
func (f *fpdus) begin(b *[]byte, marked bool) bool {
	need, size := startupLen, 0
	if f.framed {
		if need = 2; marked && f.at%mpa.MarkerInterval == 0 {
			need += mpa.MarkerLen
		}
	}
	n := min(need-len(f.head), len(*b))
	f.head = append(f.head, (*b)[:n]...)
	*b, f.next = (*b)[n:], f.next.Add(n)
	if len(f.head) < need {
		return false
	}
	n = int(binary.BigEndian.Uint16(f.head[need-2:]))
	if f.framed {
		size = mpa.Framing{Markers: marked}.Size(f.at, n)
		f.at += uint64(size)
	} else {
		size = need + n
		f.wants = f.head[wantsAt]&wantsBit != 0
	}
	f.head, f.rest = f.head[:0], size-need
	if f.rest == 0 { // a start-up frame without private data
		f.framed = true
	}
	return true
}

// before returns how many FPDUs are complete before the receiver's left edge, which never moves back.
func (f *fpdus) before(left seq.Num) uint64 {
	for len(f.ends) > 0 && f.ends[0].LessEq(left) {
		f.ends = f.ends[1:]
		f.whole++
	}
	return f.whole
}

// checkReceived checks that TCP acknowledges only bytes that e's receiver has placed or holds, and that MPA ends the
// stream only if an FPDU is wrong or incomplete. Wrong ones come from a path that spoils bytes, or from memory that is
// revoked before a part of an FPDU is sent again.
func (e *rdmaEnd) checkReceived() error {
	p := e.endpoint()
	if p == nil || e.closed > 0 || p.Conn().State() <= tcp.SynReceived {
		return nil
	}
	left := p.Conn().RcvEnd()
	if err := e.qp.Err(); err == nil {
		return e.iw.Audit(left)
	} else if !e.blamesMPA() || e.c.s.spoils || e.c.cfg.early == endInvalidate ||
		e.c.cfg.early == endVanish {
		return nil
	}
	t := p.Tuple()
	f := e.c.s.judge.flows[tcp.Tuple{Local: t.Remote, Remote: t.Local, LocalPort: t.RemotePort,
		RemotePort: t.LocalPort}]
	if f == nil {
		return nil
	}
	if n, whole := e.iw.Stats().FPDUs, f.fpdus.before(left); n < whole {
		return fmt.Errorf("%d FPDUs were received and acknowledged, %d of them were found: %w",
			whole, n, e.qp.Err())
	}
	return nil
}

// blamesMPA reports whether an error of MPA ended e's stream because an FPDU was wrong or incomplete, at e or at its
// peer.
func (e *rdmaEnd) blamesMPA() bool {
	err := e.qp.Err()
	return err != nil && err.Layer == ulpdu.MPA &&
		!strings.Contains(err.Error(), "reset or timed out")
}

// mayFail reports whether a fault excuses an error of c: a fault of the scenario, or a byte that the path has changed.
func (c *rdmaConn) mayFail() bool {
	return c.s.mayFail() || c.s.spoils && (c.a.blamesMPA() || c.b.blamesMPA())
}
