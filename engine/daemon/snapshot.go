package daemon

import (
	"time"

	"xwarp/engine/budget"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/counters"
)

// Snapshot returns the state of the daemon and of all objects.
func (d *Daemon) Snapshot() control.Snapshot { return d.snapshotOf(nil) }

// snapshotOf returns a Snapshot with only the objects of one holder. Nil means all objects, and also what only the
// operator may see, such as the log and the peers.
func (d *Daemon) snapshotOf(only *budget.Holder) control.Snapshot {
	see := func(h budget.Holder) bool { return only == nil || *only == h }
	v := control.Snapshot{Status: control.Status{Schema: 1, Command: "status", Pid: d.pid,
		Version: d.version, Uptime: time.Since(d.since).Seconds(), Replaced: isReplaced(),
		Pending: []string{}, Devices: []control.DeviceState{}, Exports: []control.ExportState{}},
		Time: time.Now(), Counters: control.Counters(&d.count)}
	if p := d.pending.Load(); p != nil {
		v.Pending = append(v.Pending, *p...)
	}
	peers, refused := d.peerStates()
	v.Counters[counters.PeersRefused.Key] = refused
	v.Unconfirmed, v.MaxPrograms = d.confirmation.timeLeft().Seconds(), d.cfg.Load().Daemon.Clients
	if n := len(d.tenants); n > 0 {
		v.Tenants, v.TenantDirectory = n, d.tenantDirectory
	}
	if only == nil {
		v.Events = d.events.Logs()
		v.Peers = peers
	}
	for _, dev := range d.deviceList() {
		dev.AddTo(&v, only == nil)
	}
	d.exports.AddTo(&v, only == nil)
	for _, s := range d.allSessions() {
		if see(s.Holder()) {
			s.AddTo(&v)
		}
	}
	v.Users = d.userStates(see)
	v.Count = v.Numbers()
	return v
}

// userStates returns the accounts of users and tenants for a snapshot.
func (d *Daemon) userStates(see func(budget.Holder) bool) (list []control.UserState) {
	cfg := d.cfg.Load()
	for _, a := range d.users.State(func(h budget.Holder) budget.Limits {
		return new(cfg.HolderLimits(h))
	}, see) {
		for k := range budget.Kinds {
			list = append(list, control.UserState{UID: a.UID, Tenant: a.Tenant,
				Resource: k.String(), Used: a.Used[k], Limit: a.Limit[k], Refused: a.Refused[k]})
		}
	}
	return list
}

// peerStates returns the accounts of peers for a snapshot, and the number of refused connections.
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
