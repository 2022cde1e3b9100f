package mpa

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"xwarp/mpa/ulpdu"
)

// logSink records the ULPDUs that it places and delivers.
type logSink struct {
	placed    [][]byte
	order     []bool // inOrder of each Place
	delivered []string
	refuse    func(u []byte, inOrder bool) *ulpdu.Error
}

func (s *logSink) Place(v *ulpdu.View, inOrder bool) *ulpdu.Error {
	u := make([]byte, v.Len())
	v.CopyTo(u, 0)
	if s.refuse != nil {
		if err := s.refuse(u, inOrder); err != nil {
			return err
		}
	}
	s.placed, s.order = append(s.placed, u), append(s.order, inOrder)
	return nil
}

func (s *logSink) Silent([]byte, int) bool { return false }

func (s *logSink) Deliver(hdr []byte, n int) *ulpdu.Error {
	s.delivered = append(s.delivered, fmt.Sprintf("%d:%x", n, hdr))
	return nil
}

// checkSink compares everything with the ULPDUs that were sent. A ULPDU of at least 8 bytes begins with its index and a
// word of flags; shorter ones are compared at delivery only.
type checkSink struct {
	sent   [][]byte
	placed []bool
	next   int // the next to be delivered
	wrong  []string
	silent bool // some FPDUs need no delivery
}

const (
	refuseEarly = 1 << iota // Place fails out of order
	noDelivery              // Silent
)

func (s *checkSink) fault(format string, args ...any) {
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

// index returns the index that the ULPDU carries, or -1.
func (s *checkSink) index(hdr []byte, n int) int {
	if n < 8 {
		return -1
	}
	if i := int(binary.BigEndian.Uint32(hdr)); i < len(s.sent) {
		return i
	}
	s.fault("ULPDU with index %x", hdr)
	return -1
}

func (s *checkSink) flags(i int) uint32 { return binary.BigEndian.Uint32(s.sent[i][4:]) }

func (s *checkSink) Place(v *ulpdu.View, inOrder bool) *ulpdu.Error {
	var scratch [HeaderKept]byte
	i := s.index(v.Header(HeaderKept, scratch[:]), v.Len())
	if i < 0 {
		return nil
	}
	if inOrder && i < s.next {
		s.fault("%d placed in order after its delivery", i)
	}
	for k := s.next; inOrder && k < i; k++ {
		if len(s.sent[k]) >= 8 && s.flags(k)&noDelivery == 0 {
			s.fault("%d placed as in order before %d was delivered", i, k)
		}
	}
	if !inOrder && s.flags(i)&refuseEarly != 0 {
		return ulpdu.Newf(ulpdu.DDP, 2, 2, "not yet")
	}
	if s.placed[i] {
		s.fault("%d placed twice", i)
	}
	got := make([]byte, v.Len())
	if n := v.CopyTo(got, 0); n != len(got) || !bytes.Equal(got, s.sent[i]) {
		s.fault("%d placed with wrong bytes", i)
	}
	s.placed[i] = true
	return nil
}

func (s *checkSink) Silent(hdr []byte, n int) bool {
	i := s.index(hdr, n)
	return i >= 0 && s.flags(i)&noDelivery != 0
}

func (s *checkSink) Deliver(hdr []byte, n int) *ulpdu.Error {
	if i := s.index(hdr, n); i >= 0 {
		s.passSilent(i)
	} else {
		for s.next < len(s.sent) && len(s.sent[s.next]) >= 8 {
			s.passSilent(s.next + 1)
			if s.next < len(s.sent) && len(s.sent[s.next]) >= 8 && s.flags(s.next)&noDelivery == 0 {
				break
			}
		}
	}
	switch {
	case s.next >= len(s.sent):
		s.fault("one delivery too many: %x", hdr)
	case n != len(s.sent[s.next]) || !bytes.Equal(hdr, s.sent[s.next][:min(n, HeaderKept)]):
		s.fault("delivery of %d bytes %x, want %d bytes for ULPDU %d", n, hdr,
			len(s.sent[s.next]), s.next)
	case n >= 8 && !s.placed[s.next]:
		s.fault("%d delivered before it was placed", s.next)
	}
	s.next++
	return nil
}

// passSilent moves next over silent ULPDUs up to i.
func (s *checkSink) passSilent(i int) {
	for s.next < min(i, len(s.sent)) && len(s.sent[s.next]) >= 8 &&
		s.flags(s.next)&noDelivery != 0 && s.silent && s.placed[s.next] {
		s.next++
	}
}
