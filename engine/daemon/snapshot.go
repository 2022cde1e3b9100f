package daemon

import (
	"context"
	"maps"
	"slices"
	"time"

	"xwarp/ddp/rdmap"
	"xwarp/engine/budget"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/counters"
	"xwarp/engine/daemon/device"
	"xwarp/engine/verbs"
)

// Snapshot returns everything that the daemon has.
func (d *Daemon) Snapshot() control.Snapshot { return d.view(nil) }

// view is a Snapshot of what belongs to one user or tenant; nil sees everything.
func (d *Daemon) view(only *budget.Holder) control.Snapshot {
	see := func(h budget.Holder) bool { return only == nil || *only == h }
	v := control.Snapshot{
		Schema: control.SnapshotSchema, Time: time.Now(), Pid: d.pid, Version: d.version,
		Uptime: time.Since(d.since).Seconds(), Counters: control.Counters(&d.count),
	}
	peers, refused := d.peerStates()
	v.Counters[counters.PeersRefused.Key] = refused
	v.Unconfirmed, v.Places = d.await.left().Seconds(), d.cfg.Load().Daemon.Clients
	if n := len(d.tenants); n > 0 {
		v.Tenants, v.TenantDirectory = n, d.tenantDirectory
	}
	if only == nil {
		v.Events = d.events.list()
		v.Peers = peers
	}
	for _, dev := range d.list() {
		v.Devices = append(v.Devices, dev.State())
		if s := v.Devices[len(v.Devices)-1].IPsec; s != nil && only != nil {
			s.SAs = nil
		}
	}
	for _, e := range d.exportList() {
		v.Exports = append(v.Exports, e.state())
		if only == nil {
			e.view(&v)
		}
	}
	for _, s := range d.all() {
		if see(s.account.Holder) {
			s.view(&v)
		}
	}
	v.Users = d.userStates(see)
	return v
}

// userStates are the accounts of users and tenants.
func (d *Daemon) userStates(see func(budget.Holder) bool) (list []control.UserState) {
	cfg := d.cfg.Load()
	for _, a := range d.users.State(func(h budget.Holder) budget.Limits {
		return new(cfg.HolderLimits(h))
	}, see) {
		list = append(list, control.UserState{UID: a.UID, Tenant: a.Tenant,
			Used: byKey(&a.Used), Limit: byKey(&a.Limit), Refused: byKey(&a.Refused)})
	}
	return list
}

// byKey has the amounts by the names of their kinds.
func byKey(a *budget.Amounts) map[string]int64 {
	v := map[string]int64{}
	for k, n := range a {
		v[budget.Kind(k).String()] = n
	}
	return v
}

// snapshot answers a program. One is under way to it at a time: it may read slowly, and another one would be
// kept meanwhile.
func (s *session) snapshot(ctx context.Context, _ *control.Request) (any, error) {
	asked := time.Now()
	defer s.account.Snapshots.Ask()()
	select {
	case s.viewing <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	only := &s.account.Holder
	if s.operator {
		only = nil
	}
	body, err := s.account.Snapshots.Snapshot(ctx, asked, func() []byte {
		return control.Marshal(new(s.d.view(only)))
	})
	if err != nil {
		<-s.viewing
		return nil, err
	}
	return &encoded{body, func() { <-s.viewing }}, nil
}

// encoded is a result that is in JSON already; sent is called when it was sent.
type encoded struct {
	body []byte
	sent func()
}

func (s *session) owner() control.Owner {
	o := control.Owner{Session: s.id, UID: s.cred.Uid, Tenant: s.account.Tenant, Pid: s.cred.Pid}
	if s.dev != nil {
		o.Device = s.dev.Name
	}
	return o
}

// view adds the objects of a session.
func (s *session) view(v *control.Snapshot) {
	s.mu.Lock()
	o := s.owner()
	v.Sessions = append(v.Sessions, control.SessionState{Owner: o, Program: s.program,
		Since: s.since, Ending: s.ctx.Err() != nil})
	var states []control.QPState
	var qps []verbs.QP
	for _, h := range slices.Sorted(maps.Keys(s.objects)) {
		switch x := s.objects[h].(type) {
		case *pd:
			v.PDs = append(v.PDs, control.PDState{Owner: o, Handle: h, MRs: x.mrs, MWs: x.mws,
				SRQs: x.srqs, QPs: x.qps})
		case *mr:
			v.MRs = append(v.MRs, control.MRState{
				Owner: o, Handle: h, PD: x.pd.handle, STag: uint32(x.mr.STag()),
				Length: x.length, Access: x.access.String(),
			})
		case *mw:
			v.MWs = append(v.MWs, control.MWState{Owner: o, Handle: h, PD: x.pd.handle,
				STag: uint32(x.mw.STag())})
		case *cq:
			v.CQs = append(v.CQs, control.CQState{
				Owner: o, Handle: h, Depth: int(x.geometry.Slots), Users: x.users,
				Completions: x.count.Load(), Overrun: x.over.Load(),
			})
		case *srq:
			v.SRQs = append(v.SRQs, control.SRQState{
				Owner: o, Handle: h, PD: x.pd.handle, Depth: x.depth, Posted: x.eng.Len(),
				Limit: x.eng.Limit(), Users: x.users,
			})
		case *listener:
			v.Listeners = append(v.Listeners, control.ListenerState{Owner: o, Handle: h,
				Addr: x.l.Addr()})
		case *qp:
			q := control.QPState{
				Owner: o, Handle: h, PD: x.pd.handle, SendCQ: x.send.handle,
				RecvCQ: x.recv.handle, State: rdmap.Idle.String(),
			}
			if x.srq != nil {
				q.SRQ = x.srq.handle
			}
			states, qps = append(states, q), append(qps, x.q)
		}
	}
	s.mu.Unlock()
	device.FillQPs(states, qps)
	v.QPs = append(v.QPs, states...)
}

// flush is the operator's: exports are.
func (s *session) flush(_ context.Context, a *control.FlushArgs) (any, error) {
	if err := s.onlyOperator("have exports flushed, and peers on their connections"); err != nil {
		return nil, err
	}
	e := s.d.export(a.Export)
	if e == nil {
		return nil, control.Errorf(control.CodeUnknown, "there is no export %q", a.Export)
	}
	_, err := e.flush(0, 0)
	return nil, err
}

// peerStates are the accounts of peers for a snapshot.
func (d *Daemon) peerStates() (list []control.PeerState, refused uint64) {
	states, refused := d.peers.State()
	for _, s := range states {
		v := control.PeerState{Prefix: "others", HalfOpen: s.HalfOpen, Startup: s.Startup,
			Connections: s.Established, Refused: s.Refused}
		if s.Prefix.IsValid() {
			v.Prefix = s.Prefix.String()
		}
		list = append(list, v)
	}
	return list, refused
}
