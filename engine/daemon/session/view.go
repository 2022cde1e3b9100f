package session

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"xwarp/ddp/rdmap"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/device"
	"xwarp/engine/daemon/nldev"
	"xwarp/engine/verbs"
)

func (s *Session) owner() control.Owner {
	return control.Owner{Session: s.id, UID: s.cred.Uid, Tenant: s.account.Tenant, Pid: s.cred.Pid}
}

// AddTo adds the session and its objects to a snapshot.
func (s *Session) AddTo(v *control.Snapshot) {
	o := s.owner()
	var port control.Port
	s.mu.Lock()
	if s.dev != nil {
		port = s.dev.Port()
	}
	ref := port.DeviceRef
	v.Sessions = append(v.Sessions, control.SessionState{DeviceRef: ref, Owner: o,
		Program: s.program, Since: s.since.Truncate(time.Second), Ending: s.ctx.Err() != nil})
	var states []control.QPState
	var qps []verbs.QP
	for _, h := range slices.Sorted(maps.Keys(s.objects)) {
		switch x := s.objects[h].(type) {
		case *pd:
			v.PDs = append(v.PDs, control.PDState{DeviceRef: ref, Owner: o, Handle: h,
				Users: x.mrs + x.mws + x.srqs + x.qps, MRs: x.mrs, MWs: x.mws, SRQs: x.srqs,
				QPs: x.qps})
		case *mr:
			v.MRs = append(v.MRs, control.MRState{
				DeviceRef: ref, Owner: o, Handle: h, PD: x.pd.handle,
				STag: control.Key(x.mr.STag()), Length: x.length, Access: x.access.String(),
			})
		case *mw:
			v.MWs = append(v.MWs, control.MWState{DeviceRef: ref, Owner: o, Handle: h,
				PD: x.pd.handle, STag: control.Key(x.mw.STag())})
		case *cq:
			v.CQs = append(v.CQs, control.CQState{
				DeviceRef: ref, Owner: o, Handle: h, Depth: int(x.geometry.Slots), Users: x.users,
				Completions: x.count.Load(), Overrun: x.overrun.Load(),
			})
		case *srq:
			v.SRQs = append(v.SRQs, control.SRQState{
				DeviceRef: ref, Owner: o, Handle: h, PD: x.pd.handle, Depth: x.depth,
				Posted: x.eng.Len(), Limit: x.eng.Limit(), Users: x.users,
			})
		case *listener:
			v.Listeners = append(v.Listeners, control.ListenerState{Port: port, Owner: o, Handle: h,
				Addr: x.eng.Addr()})
		case *qp:
			q := control.QPState{
				Port: port, Owner: o, Handle: h, Number: x.number, PD: x.pd.handle,
				SendCQ: x.send.handle, RecvCQ: x.recv.handle, State: rdmap.Idle.String(),
			}
			if x.srq != nil {
				q.SRQ = x.srq.handle
			}
			states, qps = append(states, q), append(qps, x.eng)
		}
	}
	s.mu.Unlock()
	device.FillQPs(states, qps)
	v.QPs = append(v.QPs, states...)
}

// snapshot answers OpState. A program gets one answer at a time, because it may read slowly and the daemon keeps
// each answer until it was sent.
func (s *Session) snapshot(ctx context.Context, _ *control.Request) (any, error) {
	asked := time.Now()
	defer s.account.Snapshots.Ask()()
	done, err := waitTurn(ctx, s.snapshotTurn)
	if err != nil {
		return nil, err
	}
	body, err := s.encodedSnapshot(ctx, asked)
	if err != nil {
		done()
		return nil, err
	}
	return &encoded{body, done}, nil
}

// waitTurn waits until no other request holds the slot of turn, and takes the slot, which done frees. It fails if ctx
// is done first.
func waitTurn(ctx context.Context, turn chan struct{}) (done func(), err error) {
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// encodedSnapshot returns a snapshot for the program in JSON, which was made after the time asked.
func (s *Session) encodedSnapshot(ctx context.Context, asked time.Time) ([]byte, error) {
	only := &s.account.Holder
	if s.account.Operator {
		only = nil
	}
	return s.account.Snapshots.Snapshot(ctx, asked, func() []byte {
		return control.Marshal(new(s.d.Snapshot(only)))
	})
}

// encoded is a result in JSON. reply calls sent after sending it.
type encoded struct {
	body []byte
	sent func()
}

// netlink answers OpNetlink, one answer at a time per program, from the same snapshots as OpState.
func (s *Session) netlink(ctx context.Context, a *control.NetlinkArgs) (any, error) {
	asked := time.Now()
	defer s.account.Snapshots.Ask()()
	done, err := waitTurn(ctx, s.snapshotTurn)
	if err != nil {
		return nil, err
	}
	defer done()
	var devices []nldev.Device
	for _, d := range s.d.Devices() {
		devices = append(devices, d.NetlinkDevice(a.Style))
	}
	list, err := nldev.Answer(a.Request, devices, func() (v *control.Snapshot, err error) {
		body, err := s.encodedSnapshot(ctx, asked)
		if err == nil {
			v = new(control.Snapshot)
			err = json.Unmarshal(body, v)
			v.Sessions = slices.DeleteFunc(v.Sessions, func(x control.SessionState) bool {
				return x.Session == s.id // which exists for this request only
			})
		}
		return v, err
	})
	return control.NetlinkResult{Datagrams: list}, err
}
