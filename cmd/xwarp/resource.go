package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"xwarp/engine/budget"
	"xwarp/engine/control"
	"xwarp/engine/view"
)

// resourceInfo is what resource show prints; one of the lists is there, that of the kind.
type resourceInfo struct {
	Schema    int           `json:"schema" doc:"version of this layout, 1"`
	Command   string        `json:"command" doc:"\"resource\""`
	Kind      string        `json:"kind" doc:"qp, cq, mr, pd, listener, session, user or peer; empty: the numbers of all"`
	Objects   *view.Objects `json:"objects,omitempty" doc:"how many there are"`
	QPs       []qpRow       `json:"qp,omitempty" doc:"queue pairs"`
	CQs       []cqRow       `json:"cq,omitempty" doc:"completion queues"`
	MRs       []mrRow       `json:"mr,omitempty" doc:"memory regions"`
	PDs       []pdRow       `json:"pd,omitempty" doc:"protection domains"`
	Listeners []listenerRow `json:"listener,omitempty" doc:"listeners"`
	Sessions  []sessionRow  `json:"session,omitempty" doc:"programs"`
	Users     []userRow     `json:"user,omitempty" doc:"what users have of what [limits] allows"`
	Peers     []peerRow     `json:"peer,omitempty" doc:"remote addresses and their networks, those with the most connections; for root"`
}

type qpRow struct {
	Device   string         `json:"device" doc:"where it is"`
	QP       control.Handle `json:"qpn" doc:"its number in its session"`
	State    string         `json:"state" doc:"of the queue pair"`
	Local    string         `json:"local,omitempty" doc:"address"`
	Remote   string         `json:"remote,omitempty" doc:"address"`
	TCPState string         `json:"tcp_state,omitempty" doc:"of the connection"`
	PD       control.Handle `json:"pdn,omitempty" doc:"protection domain"`
	SendCQ   control.Handle `json:"send_cqn,omitempty" doc:"completion queue of the send queue"`
	RecvCQ   control.Handle `json:"recv_cqn,omitempty" doc:"completion queue of the receive queue"`
	In       uint64         `json:"payload_in" doc:"octets placed"`
	Out      uint64         `json:"payload_out" doc:"octets sent"`
	Held     uint64         `json:"held_octets" doc:"octets that wait for what is missing in front of them"`
	Export   string         `json:"export,omitempty" doc:"whose it is, instead of a session"`
	Session  uint64         `json:"session,omitempty" doc:"whose it is"`
	UID      uint32         `json:"uid" doc:"user"`
	Pid      int32          `json:"pid,omitempty" doc:"process"`
	Error    string         `json:"error,omitempty" doc:"why it ended"`
}

type cqRow struct {
	Device      string         `json:"device" doc:"where it is"`
	CQ          control.Handle `json:"cqn" doc:"its number in its session"`
	Depth       int            `json:"cqe" doc:"completions that it can hold"`
	Users       int            `json:"users" doc:"work queues that complete there"`
	Completions uint64         `json:"completions" doc:"so far"`
	Overrun     bool           `json:"overrun" doc:"completions were lost"`
	Session     uint64         `json:"session" doc:"whose it is"`
	UID         uint32         `json:"uid" doc:"user"`
	Pid         int32          `json:"pid" doc:"process"`
}

type mrRow struct {
	Device  string         `json:"device" doc:"where it is"`
	MR      control.Handle `json:"mrn" doc:"its number in its session"`
	PD      control.Handle `json:"pdn" doc:"protection domain"`
	STag    string         `json:"stag" doc:"steering tag, hexadecimal"`
	Length  uint64         `json:"mrlen" doc:"octets"`
	Access  string         `json:"access" doc:"rights of peers"`
	Session uint64         `json:"session" doc:"whose it is"`
	UID     uint32         `json:"uid" doc:"user"`
	Pid     int32          `json:"pid" doc:"process"`
}

type pdRow struct {
	Device  string         `json:"device" doc:"where it is"`
	PD      control.Handle `json:"pdn" doc:"its number in its session"`
	MRs     int            `json:"mrs" doc:"memory regions in it"`
	QPs     int            `json:"qps" doc:"queue pairs in it"`
	Session uint64         `json:"session" doc:"whose it is"`
	UID     uint32         `json:"uid" doc:"user"`
	Pid     int32          `json:"pid" doc:"process"`
}

type listenerRow struct {
	Device   string         `json:"device" doc:"where it is"`
	Listener control.Handle `json:"listenern,omitempty" doc:"its number in its session"`
	Addr     string         `json:"address" doc:"where it listens"`
	Export   string         `json:"export,omitempty" doc:"whose it is, instead of a session"`
	Session  uint64         `json:"session,omitempty" doc:"whose it is"`
	UID      uint32         `json:"uid" doc:"user"`
	Pid      int32          `json:"pid,omitempty" doc:"process"`
}

type sessionRow struct {
	Session uint64 `json:"session" doc:"its number"`
	Program string `json:"program" doc:"as it calls itself"`
	Device  string `json:"device" doc:"that it uses"`
	UID     uint32 `json:"uid" doc:"user"`
	Pid     int32  `json:"pid" doc:"process"`
	Since   string `json:"since" doc:"when it came"`
}

type userRow struct {
	UID      uint32 `json:"uid" doc:"user"`
	Resource string `json:"resource" doc:"key in [limits]"`
	Used     int64  `json:"used" doc:"now, over all programs of the user; octets of memory and daemon_memory"`
	Limit    int64  `json:"limit" doc:"at most"`
	Refused  int64  `json:"refused" doc:"how often the limit was in the way"`
}

type peerRow struct {
	Prefix      string `json:"prefix" doc:"an IPv4 address or an IPv6 /64, or a network: an IPv4 /24 or an IPv6 /48"`
	HalfOpen    int    `json:"half_open" doc:"handshakes that are not done"`
	Startup     int    `json:"startup" doc:"connections whose MPA start-up is not done"`
	Connections int    `json:"connections" doc:"that are established"`
	Refused     uint64 `json:"refused" doc:"connections that were more than it may have"`
}

// kinds are what resource show takes.
var kinds = []string{"qp", "cq", "mr", "pd", "listener", "session", "user", "peer"}

func newResource(*global) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "resource",
		Short:   "Show what programs have: queue pairs, memory regions and so on",
		Long:    "resource shows the objects of programs, as rdma resource of iproute2 does for RDMA cards. Users other than the operator see their own.",
		Example: "  xwarp resource show\n  xwarp resource show qp\n  xwarp resource show mr -j",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var o operatorFlags
	show := &cobra.Command{
		Use: "show [qp|cq|mr|pd|listener|session|user|peer]", Short: "List the objects of one kind, or how many there are",
		Example:   "  xwarp resource show\n  xwarp resource show qp --watch\n  xwarp resource show user",
		ValidArgs: kinds,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("%q is one argument too many", args[1])
			}
			if len(args) == 1 && !slices.Contains(kinds, args[0]) {
				return usagef("%q is no kind of object; there are %v", args[0], kinds)
			}
			return nil
		},
	}
	o.register(show, true)
	show.RunE = func(cmd *cobra.Command, args []string) error {
		kind := ""
		if len(args) == 1 {
			kind = args[0]
		}
		return o.show(cmd, func(s *control.Snapshot) any { return makeResources(s, kind) }, writeResources)
	}
	cmd.AddCommand(show)
	return cmd
}

func makeResources(s *control.Snapshot, kind string) resourceInfo {
	v := resourceInfo{Schema: 1, Command: "resource", Kind: kind}
	switch kind {
	case "":
		n := view.CountObjects(s)
		v.Objects = &n
	case "qp":
		for i := range s.QPs {
			v.QPs = append(v.QPs, makeQP(&s.QPs[i]))
		}
	case "cq":
		for _, c := range s.CQs {
			v.CQs = append(v.CQs, cqRow{c.Device, c.Handle, c.Depth, c.Users, c.Completions, c.Overrun, c.Session, c.UID, c.Pid})
		}
	case "mr":
		for _, m := range s.MRs {
			v.MRs = append(v.MRs, mrRow{m.Device, m.Handle, m.PD, fmt.Sprintf("0x%08x", m.STag), m.Length, m.Access, m.Session, m.UID, m.Pid})
		}
	case "pd":
		for _, p := range s.PDs {
			v.PDs = append(v.PDs, pdRow{p.Device, p.Handle, p.MRs, p.QPs, p.Session, p.UID, p.Pid})
		}
	case "listener":
		for _, l := range s.Listeners {
			v.Listeners = append(v.Listeners, listenerRow{Device: l.Device, Listener: l.Handle, Addr: l.Addr.String(), Session: l.Session, UID: l.UID, Pid: l.Pid})
		}
		for _, e := range s.Exports {
			v.Listeners = append(v.Listeners, listenerRow{Device: e.Device, Addr: e.Listen.String(), Export: e.Name})
		}
	case "peer":
		for _, p := range s.Peers {
			v.Peers = append(v.Peers, peerRow(p))
		}
	case "session":
		for _, p := range s.Sessions {
			v.Sessions = append(v.Sessions, sessionRow{p.Session, p.Program, p.Device, p.UID, p.Pid, p.Since.Format("2006-01-02T15:04:05Z07:00")})
		}
	case "user":
		for _, u := range s.Users {
			for k := range budget.Kinds {
				name := k.String()
				v.Users = append(v.Users, userRow{u.UID, name, u.Used[name], u.Limit[name], u.Refused[name]})
			}
		}
	}
	return v
}

func makeQP(q *control.QPState) qpRow {
	return qpRow{
		Device: q.Device, QP: q.Handle, State: q.State, Local: view.Address(q.Local), Remote: view.Address(q.Remote), TCPState: q.TCPState,
		PD: q.PD, SendCQ: q.SendCQ, RecvCQ: q.RecvCQ, In: q.Counters["payload_in"], Out: q.Counters["payload_out"],
		Held: q.MPA["held_octets"], Export: q.Export, Session: q.Session, UID: q.UID, Pid: q.Pid, Error: q.Error,
	}
}

func writeResources(w io.Writer, v any) error {
	r := v.(resourceInfo)
	if r.Objects != nil {
		return writeRow(w, *r.Objects)
	}
	return firstError(writeRows(w, r.QPs), writeRows(w, r.CQs), writeRows(w, r.MRs), writeRows(w, r.PDs), writeRows(w, r.Listeners),
		writeRows(w, r.Sessions), writeRows(w, r.Users), writeRows(w, r.Peers))
}

func writeRows[T any](w io.Writer, rows []T) error {
	for _, r := range rows {
		if err := writeRow(w, r); err != nil {
			return err
		}
	}
	return nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
