package daemon

import (
	"xwarp/engine"
	"xwarp/engine/control"
)

// fillQP adds what the worker knows about a queue pair.
func fillQP(v *control.QPState, q *engine.QP) {
	if err := q.Err(); err != nil {
		v.Error = err.Error()
	}
	i, err := q.Info()
	if err != nil {
		return // not connected yet, or the device is closed
	}
	v.Local, v.Remote = q.LocalAddr(), q.RemoteAddr()
	v.State = i.State.String()
	v.Counters, v.MPA = control.Counters(&i.Counters), control.Counters(&i.MPA)
	if i.TCP != nil {
		v.TCP, v.TCPState = control.Counters(i.TCP), i.TCP.State.String()
	}
}

// view adds the connections of an export.
func (e *export) view(v *control.Snapshot) {
	e.mu.Lock()
	var list []*engine.QP
	for q := range e.conns {
		list = append(list, q)
	}
	e.mu.Unlock()
	for _, q := range list {
		s := control.QPState{Owner: control.Owner{Export: e.cfg.Name, Device: e.dev.name}}
		fillQP(&s, q)
		v.QPs = append(v.QPs, s)
	}
}
