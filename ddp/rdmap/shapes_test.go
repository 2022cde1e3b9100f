package rdmap

import (
	"errors"
	"testing"

	"xwarp/ddp"
)

// TestShapes posts each operation with every number of pieces and of inline bytes around their limits. A work request
// that breaks a rule is refused whole.
func TestShapes(t *testing.T) {
	const maxSGE, maxInline = 3, 16
	for _, c := range []struct {
		op     WROp
		pieces int  // most pieces
		length int  // of each, where only one length will do
		inline bool // inline data may take the place of pieces
		both   bool // RDMA Consortium's version has it, too
	}{
		{WRSend, maxSGE, 0, true, true},
		{WRSendSE, maxSGE, 0, true, true},
		{WRSendInv, maxSGE, 0, true, true},
		{WRSendSEInv, maxSGE, 0, true, true},
		{WRWrite, maxSGE, 0, true, true},
		{WRRead, maxSGE, 0, false, true},
		{WRImm, 0, 0, false, false},
		{WRImmSE, 0, 0, false, false},
		{WRFetchAdd, 1, 8, false, false},
		{WRCmpSwap, 1, 8, false, false},
		{WRLocalInv, 0, 0, false, true},
		{WRBindMW, 0, 0, false, true},
	} {
		for _, version := range []ddp.Version{ddp.IETF, ddp.RDMAC} {
			for pieces := range maxSGE + 2 {
				for _, length := range []int{1, 7, 8, 9} {
					for _, inline := range []int{0, 1, maxInline, maxInline + 1} {
						var want error
						switch {
						case !c.both && version != ddp.IETF:
							want = ErrOp
						case pieces > c.pieces:
							want = ErrSGE
						case inline > 0 && (!c.inline || pieces > 0 || inline > maxInline):
							want = ErrInline
						case c.length > 0 && pieces*length != c.length:
							want = ErrAtomicLen
						}
						h := newHost(t, 1).open(func(cfg *Config) {
							cfg.MaxSGE, cfg.MaxInline = maxSGE, maxInline
						}, Params{Version: version, ORD: 1, IRD: 1})
						m := h.region(64, ddp.Attr{Access: ddp.LocalWrite | ddp.RemoteWrite})
						wr := SendWR{Op: c.op, Inline: make([]byte, inline), RemoteSTag: 1}
						for range pieces {
							wr.SGL = append(wr.SGL, SGE{STag: m.STag(), TO: m.Base(),
								Len: uint32(length)})
						}
						if err := h.qp.PostSend(&wr); !errors.Is(err, want) {
							t.Errorf(
								"operation %v, version %d, %d pieces of %d, %d inline: %v, want %v",
								c.op, version, pieces, length, inline, err, want)
						}
					}
				}
			}
		}
	}
	h := newHost(t, 1).open(func(cfg *Config) { cfg.MaxSGE = maxSGE }, Params{Version: ddp.IETF})
	for pieces, want := range map[int]error{maxSGE: nil, maxSGE + 1: ErrSGE} {
		if err := h.qp.PostRecv(&RecvWR{SGL: make([]SGE, pieces)}); !errors.Is(err, want) {
			t.Errorf("a receive of %d pieces: %v, want %v", pieces, err, want)
		}
	}
}
