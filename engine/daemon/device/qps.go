package device

import (
	"context"
	"log/slog"
	"sync"

	"xwarp/ddp/rdmap"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/counters"
	"xwarp/engine/internal/core"
	"xwarp/engine/verbs"
)

// FillQPs adds the workers' information about the queue pairs q to the states v.
func FillQPs(v []control.QPState, q []verbs.QP) {
	for i, info := range core.Infos(q) {
		v := &v[i]
		v.Type = "RC"
		v.Error = verbs.ErrorText(q[i].Err())
		if info == nil { // not connected yet, or the device is closed
			continue
		}
		v.Local, v.Remote = q[i].LocalAddr(), q[i].RemoteAddr()
		v.State, v.Transport, v.DSCP = info.State.String(), info.Transport, info.DSCP
		v.RDMA, v.MPA = control.Counters(&info.Counters), control.Counters(&info.MPA)
		v.In, v.Out = counters.PayloadIn.Of(v.RDMA), counters.PayloadOut.Of(v.RDMA)
		v.Held = counters.HeldBytes.Of(v.MPA)
		if info.TCP != nil {
			v.TCP, v.TCPState = control.Counters(info.TCP), info.TCP.State.String()
		}
	}
}

// Disconnect closes connections gracefully, all at the same time, until ctx is done.
func Disconnect(ctx context.Context, list []*core.QP) {
	var group sync.WaitGroup
	for _, q := range list {
		group.Go(func() { q.Shutdown(ctx) })
	}
	group.Wait()
}

// LogCompletion logs a failed completion. Callers do so for the first one of a queue pair only.
func LogCompletion(log *slog.Logger, v *verbs.Completion) {
	log.Warn("IBV_WC_"+v.Status.String(), "local", v.QP.LocalAddr(), "remote", v.QP.RemoteAddr(),
		"op", v.Op.String())
}

// HasFailed reports whether a completion has an error other than WR_FLUSH_ERR, which is only the result of another
// error.
func HasFailed(v *verbs.Completion) bool {
	return v.Status != rdmap.Success && v.Status != rdmap.WRFlushErr
}
