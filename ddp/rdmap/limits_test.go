package rdmap

import (
	"errors"
	"testing"

	"xwarp/ddp"
)

// TestLongestMessage: a message may have 2^32-1 bytes, and not one more (RFC 5041, 5.2). The length is refused before
// the memory is checked, since no region is that long.
//
//req:rfc5041-5.2-2
func TestLongestMessage(t *testing.T) {
	h := newHost(t, 1).open(nil, Params{Version: ddp.IETF})
	half := SGE{STag: 0x100, Len: 1 << 31}
	if err := h.qp.PostSend(&SendWR{Op: WRSend, SGL: []SGE{half, half}}); !errors.Is(err,
		ErrTooLong) {
		t.Errorf("2^32 bytes: %v", err)
	}
	half.Len--
	if err := h.qp.PostSend(&SendWR{Op: WRSend,
		SGL: []SGE{half, {STag: 0x100, Len: 1 << 31}}}); errors.Is(err, ErrTooLong) {
		t.Errorf("2^32-1 bytes: %v", err)
	}
}
