package control

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/engine/daemon/rendezvous"
)

var update = flag.Bool("update", false, "write the header of the C library again")

// TestLayoutHeader checks the header that gives the protocol to the C library for verbs programs. `go test
// ./engine/daemon/control -run Layout -update` writes it.
func TestLayoutHeader(t *testing.T) {
	const path = "../../../cmd/libxwarp-verbs/lib/layout.h"
	var b strings.Builder
	b.WriteString("/* Made by `go test ./engine/daemon/control -run Layout -update`: do not edit. */\n")
	b.WriteString("#pragma once\n")
	fmt.Fprintf(&b, "#define XW_DEFAULT_PATH %q\n", DefaultPath)
	fmt.Fprintf(&b, "#define XW_SYSFS_SUFFIX %q\n", sysfsSuffix)
	for _, c := range []struct {
		name  string
		value uint64
	}{
		{"VERSION", Version},
		{"HEADER_LEN", headerLen},
		{"MAX_FILES", MaxFiles},
		{"KIND_REQUEST", uint64(KindRequest)},
		{"KIND_REPLY", uint64(KindReply)},
		{"KIND_EVENT", uint64(KindEvent)},
		{"MAX_DEPTH", MaxDepth},
		{"MAX_CQ_DEPTH", MaxCQDepth},
		{"MAX_REGION", MaxRegion},
		{"MAX_OFFSET", MaxOffset},
		{"MAX_BACKLOG", MaxBacklog}, {"MAX_RESOLVE", MaxResolve},
		{"MAX_SGE", rdmap.MaxSGE},
		{"MAX_INLINE", rdmap.MaxInline},
		{"QPN_BITS", rendezvous.QPNBits},
		{"ACCESS_LOCAL_WRITE", uint64(ddp.LocalWrite)},
		{"ACCESS_REMOTE_READ", uint64(ddp.RemoteRead)},
		{"ACCESS_REMOTE_WRITE", uint64(ddp.RemoteWrite)},
		{"ACCESS_REMOTE_ATOMIC", uint64(ddp.RemoteAtomic)},
		{"ACCESS_BIND_MW", uint64(ddp.BindMW)},
		{"RING_TAIL", tailAt},
		{"RING_HEAD", headAt},
		{"RING_ARMED", armedAt},
		{"RING_STATE", stateAt},
		{"RING_WAITS", waitsAt},
		{"RING_SLOTS", slotsAt},
		{"ARMED_SOLICITED", armedSolicited},
		{"STATE_OVERRUN", StateOverrun},
		{"DOORBELL_LEN", DoorbellLen},
		{"DOORBELL_BELLS", bellsAt},
		{"MAX_QPS", MaxBells},
		{"SLOT_ID", idAt},
		{"SEND_OP", opAt},
		{"SEND_FLAGS", flagsAt},
		{"SEND_PIECES", piecesAt},
		{"SEND_INLINE", inlineAt},
		{"SEND_REMOTE_STAG", remoteSTagAt},
		{"SEND_INVALIDATE", invalidateAt},
		{"SEND_REMOTE_TO", remoteTOAt},
		{"SEND_IMM", immAt},
		{"SEND_DATA", dataAt},
		{"SEND_MASK", maskAt},
		{"SEND_COMPARE", compareAt},
		{"SEND_COMPARE_MASK", compareMaskAt},
		{"SEND_REGION", regionAt},
		{"SEND_ACCESS", accessAt},
		{"SEND_HEAD", sendHead},
		{"RECV_PIECES", recvPiecesAt},
		{"RECV_FLAGS", recvFlagsAt},
		{"RECV_HEAD", recvHead},
		{"SGE_LEN", sgeLenAt},
		{"SGE_TO", sgeTOAt},
		{"SGE_SIZE", sgeLen},
		{"CQE_QP", cqeQPAt},
		{"CQE_OP", cqeOpAt},
		{"CQE_STATUS", cqeStatusAt},
		{"CQE_FLAGS", cqeFlagsAt},
		{"CQE_LEN", cqeLenAt},
		{"CQE_INVALIDATED", cqeInvalidatedAt},
		{"CQE_IMM", cqeImmAt},
		{"CQE_SIZE", CompletionSlot},
		{"OP_SEND", uint64(rdmap.WRSend)},
		{"OP_SEND_SE", uint64(rdmap.WRSendSE)},
		{"OP_SEND_INV", uint64(rdmap.WRSendInv)},
		{"OP_SEND_SE_INV", uint64(rdmap.WRSendSEInv)},
		{"OP_WRITE", uint64(rdmap.WRWrite)},
		{"OP_READ", uint64(rdmap.WRRead)},
		{"OP_IMM", uint64(rdmap.WRImm)},
		{"OP_IMM_SE", uint64(rdmap.WRImmSE)},
		{"OP_FETCH_ADD", uint64(rdmap.WRFetchAdd)},
		{"OP_CMP_SWAP", uint64(rdmap.WRCmpSwap)},
		{"OP_LOCAL_INV", uint64(rdmap.WRLocalInv)},
		{"OP_BIND_MW", uint64(rdmap.WRBindMW)},
		{"OP_SEND_IMM", uint64(rdmap.WRSendImm)},
		{"OP_SEND_IMM_SE", uint64(rdmap.WRSendImmSE)},
		{"OP_WRITE_IMM", uint64(OpWriteImm)},
		{"OP_WRITE_IMM_SE", uint64(opWriteImmSE)},
		{"OP_RECV", uint64(rdmap.WRRecv)},
		{"WR_SIGNALED", uint64(rdmap.Signaled)},
		{"WR_FENCE", uint64(rdmap.Fence)},
		{"WR_ZERO_BASED", uint64(rdmap.ZeroBased)},
		{"WR_MARKED", uint64(rdmap.Marked)},
		{"WC_SUCCESS", uint64(rdmap.Success)},
		{"WC_LOC_LEN_ERR", uint64(rdmap.LocLenErr)},
		{"WC_LOC_QP_OP_ERR", uint64(rdmap.LocQPOpErr)},
		{"WC_LOC_PROT_ERR", uint64(rdmap.LocProtErr)},
		{"WC_WR_FLUSH_ERR", uint64(rdmap.WRFlushErr)},
		{"WC_REM_INV_REQ_ERR", uint64(rdmap.RemInvReqErr)},
		{"WC_REM_ACCESS_ERR", uint64(rdmap.RemAccessErr)},
		{"WC_REM_OP_ERR", uint64(rdmap.RemOpErr)},
		{"WC_BAD_RESP_ERR", uint64(rdmap.BadRespErr)},
		{"WC_FATAL_ERR", uint64(rdmap.FatalErr)},
		{"WC_MW_BIND_ERR", uint64(rdmap.MWBindErr)},
		{"WC_RETRY_EXC_ERR", uint64(rdmap.RetryExcErr)},
		{"WC_RNR_RETRY_EXC_ERR", uint64(rdmap.RNRRetryExcErr)},
		{"WC_WITH_IMM", uint64(rdmap.WithImm)},
		{"WC_OF_SEND", uint64(rdmap.OfSend)},
		{"WC_WITH_INVALIDATE", uint64(rdmap.WithInvalidate)},
		{"WC_WAS_MARKED", uint64(rdmap.WasMarked)},
	} {
		fmt.Fprintf(&b, "#define XW_%s %#xULL\n", c.name, c.value)
	}
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != b.String() {
		t.Errorf("%s does not match the protocol (%v): run this test with -update", path, err)
	}
}
