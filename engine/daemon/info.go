package daemon

import (
	"xwarp/engine/daemon/control"
	"xwarp/engine/internal/core"
	"xwarp/engine/verbs"
)

// fillQPs adds what the workers know about queue pairs: v is the state of q.
func fillQPs(v []control.QPState, q []verbs.QP) {
	for i, info := range core.Infos(q) {
		v := &v[i]
		v.Error = text(q[i].Err())
		if info == nil { // not connected yet, or the device is closed
			continue
		}
		v.Local, v.Remote = q[i].LocalAddr(), q[i].RemoteAddr()
		v.State, v.Transport = info.State.String(), info.Transport
		v.Counters, v.MPA = control.Counters(&info.Counters), control.Counters(&info.MPA)
		if info.TCP != nil {
			v.TCP, v.TCPState = control.Counters(info.TCP), info.TCP.State.String()
		}
	}
}

// view adds the connections of an export.
func (e *export) view(v *control.Snapshot) {
	e.mu.Lock()
	var list []verbs.QP
	for q := range e.conns {
		list = append(list, q)
	}
	e.mu.Unlock()
	if e.srv != nil {
		list = e.srv.QPs()
	}
	states := make([]control.QPState, len(list))
	for i := range states {
		states[i].Owner = control.Owner{Export: e.cfg.Name, Device: e.dev.name}
	}
	fillQPs(states, list)
	v.QPs = append(v.QPs, states...)
}
