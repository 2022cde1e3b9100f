package main

import (
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"strings"

	"github.com/spf13/cobra"

	"xwarp/engine/budget"
	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/counters"
	"xwarp/engine/daemon/view"
)

// kinds are the arguments of resource show. An abbreviation selects the first match, as in iproute2.
var kinds = []string{
	"qp", "cm_id", "cq", "mr", "pd", "listener", "session", "user", "peer", "srq", "mw", "sa",
}

func newResource(*global) *cobra.Command {
	var o operatorFlags
	cmd, show := objectCommand("resource", &o)
	cmd.Short = "Show RDMA objects: queue pairs, memory regions, ..."
	cmd.Long = `resource shows the objects of programs, like "rdma resource" of iproute2. Filters may follow the
kind: "link DEV" or "dev DEV" selects a device, "KEY VALUE" selects objects by a value, a list or a range of numbers. DEV
is the name of an interface, or xwarpN for device number N. Words may be abbreviated, and -j may stand anywhere. Users other than the operator see only their own objects.`
	cmd.Example = "  xwarp resource show\n  xwarp -j res sh q\n  xwarp res show qp link eth0/1 " +
		"lqpn 5-7\n  xwarp res show cm_id dst-port 7174"
	show.Use = "show [DEV|" + strings.Join(kinds, "|") + " [link DEV/PORT] [KEY VALUE]...]"
	show.Short = "List the objects of one kind, or count the objects of each kind"
	show.Example = "  xwarp resource show\n  xwarp resource show qp --watch\n  xwarp resource " +
		"show mr pid 4711\n  xwarp resource show user"
	show.ValidArgsFunction = completeResource
	run := func(cmd *cobra.Command, args []string) error {
		var kind string
		var f filters
		switch {
		case len(args) == 0:
		case prefixOf(kinds, args[0]) != "":
			kind = prefixOf(kinds, args[0])
			if err := f.parse(args[1:], kindKeys(kind)); err != nil {
				return err
			}
		case len(args) == 1:
			f.device, f.unknown = args[0],
				fmt.Sprintf("neither a device nor a kind of object; the kinds are %v", kinds)
		default:
			return usagef("unknown kind of object %q; the kinds are %v", args[0], kinds)
		}
		return printSnapshots(cmd, &o, func(s *control.Snapshot) (v resourceInfo, err error) {
			if err := f.resolve(s); err != nil {
				return v, err
			}
			v = makeResources(s, kind)
			if kind != "" {
				f.apply(v.rows(kind))
			}
			return v, nil
		}, writeResources)
	}
	show.RunE = run
	cmd.RunE = defaultShow(run)
	return cmd
}

// rows returns the list of a kind. Its JSON key is the kind.
func (v *resourceInfo) rows(kind string) (list reflect.Value) {
	walkRow(reflect.ValueOf(v).Elem(), func(name string, field reflect.Value, _ bool) {
		if name == kind {
			list = field
		}
	})
	return list
}

func makeResources(s *control.Snapshot, kind string) resourceInfo {
	v := resourceInfo{document: document{2, "resource"}, Kind: kind}
	index := map[string]int{}
	for i := range s.Devices {
		index[s.Devices[i].Name] = i
	}
	dev := func(d string) onDevice { return onDevice{index[d], d} }
	link := func(d string) onLink { return onLink{dev(d), 1} }
	switch kind {
	case "":
		n := view.CountObjects(s)
		v.Objects = &n
	case "qp":
		v.QPs = each(s.QPs, func(q *control.QPState) qpRow { return makeQP(q, link(q.Device)) })
	case "cm_id":
		v.CMIDs = makeCMIDs(s, link)
	case "cq":
		v.CQs = each(s.CQs, func(c *control.CQState) cqRow {
			return cqRow{dev(c.Device), c.Handle, c.Depth, c.Users, c.Completions, c.Overrun,
				makeOwner(&c.Owner)}
		})
	case "srq":
		v.SRQs = each(s.SRQs, func(q *control.SRQState) srqRow {
			return srqRow{dev(q.Device), q.Handle, q.Depth, q.Posted, q.Limit, q.Users, q.PD,
				makeOwner(&q.Owner)}
		})
	case "mr":
		v.MRs = each(s.MRs, func(m *control.MRState) mrRow {
			return mrRow{dev(m.Device), m.Handle, fmt.Sprintf("0x%08x", m.STag), m.Length, m.PD,
				m.Access, makeOwner(&m.Owner)}
		})
	case "mw":
		v.MWs = each(s.MWs, func(m *control.MWState) mwRow {
			return mwRow{dev(m.Device), m.Handle, fmt.Sprintf("0x%08x", m.STag), m.PD,
				makeOwner(&m.Owner)}
		})
	case "pd":
		v.PDs = each(s.PDs, func(p *control.PDState) pdRow {
			return pdRow{dev(p.Device), p.Handle, p.MRs + p.MWs + p.SRQs + p.QPs, p.MRs, p.MWs,
				p.SRQs, p.QPs, makeOwner(&p.Owner)}
		})
	case "listener":
		v.Listeners = each(s.Listeners, func(l *control.ListenerState) listenerRow {
			return listenerRow{link(l.Device), l.Handle, l.Addr.String(), makeOwner(&l.Owner)}
		})
		for _, e := range s.Exports {
			for _, at := range exportAddrs(&e) {
				v.Listeners = append(v.Listeners, listenerRow{onLink: link(e.Device),
					Addr: at.String(), ownerRow: ownerRow{Export: e.Name}})
			}
		}
	case "sa":
		v.SAs = []saRow{}
		for i := range s.Devices {
			if p := s.Devices[i].IPsec; p != nil {
				v.SAs = append(v.SAs, each(p.SAs, func(a *control.SAState) saRow {
					return saRow{dev(a.Device), fmt.Sprintf("0x%08x", a.SPI), a.Direction,
						a.Local.String(), a.Remote.String(), a.Mode,
						fmt.Sprintf("aes%dgcm16", a.KeyBits), a.ESN, a.Sending, a.Packets, a.Bytes,
						a.Replayed, a.Forged}
				})...)
			}
		}
	case "peer":
		v.Peers = each(s.Peers, func(p *control.PeerState) peerRow { return peerRow(*p) })
	case "session":
		v.Sessions = each(s.Sessions, func(p *control.SessionState) sessionRow {
			return sessionRow{p.Session, p.Program, dev(p.Device), p.UID, p.Tenant, p.Pid,
				comm(p.Pid),
				p.Since.Format("2006-01-02T15:04:05Z07:00")}
		})
	case "user":
		v.Users = []userRow{}
		for _, u := range s.Users {
			for k := range budget.Kinds {
				name := k.String()
				v.Users = append(v.Users, userRow{u.UID, u.Tenant, name, u.Used[name],
					u.Limit[name],
					u.Refused[name]})
			}
		}
	}
	return v
}

// each converts each object to a row. The result is never nil.
func each[T, R any](list []T, row func(*T) R) []R {
	rows := make([]R, len(list))
	for i := range list {
		rows[i] = row(&list[i])
	}
	return rows
}

func makeOwner(o *control.Owner) ownerRow {
	return ownerRow{o.Export, o.Session, o.UID, o.Tenant, o.Pid, comm(o.Pid)}
}

// comm returns the name of a process, from /proc as rdma does. It is empty if the process has exited.
func comm(pid int32) string {
	if pid == 0 {
		return ""
	}
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return strings.TrimSuffix(string(b), "\n")
}

func makeQP(q *control.QPState, l onLink) qpRow {
	return qpRow{
		onLink: l, QP: q.Handle, Type: "RC", State: q.State, Local: view.Address(q.Local),
		Remote: view.Address(q.Remote), Transport: q.Transport, TCPState: q.TCPState,
		PD: q.PD, SendCQ: q.SendCQ, RecvCQ: q.RecvCQ, In: q.Counters["payload_in"],
		Out:  q.Counters["payload_out"],
		Held: counters.HeldBytes.Of(q.MPA), Number: q.Number, ownerRow: makeOwner(&q.Owner),
		Error: q.Error, DSCP: q.DSCP,
	}
}

// exportAddrs returns the listening addresses of an export.
func exportAddrs(e *control.ExportState) []netip.AddrPort {
	if e.Error != "" {
		return nil
	}
	return config.ListenAddresses(e.Listen)
}

func makeCMIDs(s *control.Snapshot, link func(string) onLink) []cmRow {
	listen := func(device string, at netip.AddrPort, o ownerRow) cmRow {
		return cmRow{onLink: link(device), Type: "RC", State: "LISTEN", Space: "TCP",
			SrcAddr: at.Addr().String(), SrcPort: at.Port(), ownerRow: o}
	}
	rows := each(s.Listeners, func(l *control.ListenerState) cmRow {
		return listen(l.Device, l.Addr, makeOwner(&l.Owner))
	})
	for _, e := range s.Exports {
		for _, at := range exportAddrs(&e) {
			rows = append(rows, listen(e.Device, at, ownerRow{Export: e.Name}))
		}
	}
	for i := range s.QPs {
		q := &s.QPs[i]
		if !q.Remote.IsValid() {
			continue
		}
		state := q.State
		if state == "RTS" {
			state = "CONNECT"
		}
		rows = append(rows, cmRow{
			link(q.Device), "RC", q.Handle, state, "TCP", q.Local.Addr().String(), q.Local.Port(),
			q.Remote.Addr().String(), q.Remote.Port(), makeOwner(&q.Owner),
		})
	}
	return rows
}
