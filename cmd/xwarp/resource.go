package main

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"reflect"
	"strings"

	"github.com/spf13/cobra"

	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/view"
)

// resourceInfo is the output of resource show. It has only the list of its kind, even if that list is empty.
type resourceInfo struct {
	document
	Kind   string         `json:"kind" doc:"qp, cm_id, cq, srq, mr, mw, pd, listener, session, user, peer or sa; empty: counts of all kinds"`
	Counts *control.Count `json:"objects,omitempty" doc:"number of objects of each kind"`
	CMIDs  []cmRow        `json:"cm_id,omitzero" doc:"listeners and connections"`
	control.Objects
}

// cmRow is a listener or connection as iproute2's rdma shows it.
type cmRow struct {
	control.Port
	Type    string         `json:"qp-type" doc:"RC"`
	QP      control.Handle `json:"lqpn,omitempty" doc:"queue pair; absent for a listener"`
	State   string         `json:"state" doc:"LISTEN, CONNECT, or another state of the queue pair"`
	Space   string         `json:"ps" doc:"port space: TCP"`
	SrcAddr string         `json:"src-addr" doc:"local address"`
	SrcPort uint16         `json:"src-port" doc:"local port"`
	DstAddr string         `json:"dst-addr,omitempty" doc:"remote address"`
	DstPort uint16         `json:"dst-port,omitempty" doc:"remote port"`
	control.Owner
}

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
			f.device, f.notFound = args[0],
				fmt.Sprintf("neither a device nor a kind of object; the kinds are %v", kinds)
		default:
			return usagef("unknown kind of object %q; the kinds are %v", args[0], kinds)
		}
		return printSnapshots(cmd, &o, func(s *control.Snapshot) (resourceInfo, error) {
			err := f.resolve(s)
			return makeResources(s, kind, &f), err
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

// makeResources returns the objects of a kind that match the filters.
func makeResources(s *control.Snapshot, kind string, f *filters) resourceInfo {
	v := resourceInfo{document: document{2, "resource"}, Kind: kind}
	switch kind {
	case "":
		v.Counts = new(s.Numbers())
		return v
	case "cm_id":
		v.CMIDs = makeCMIDs(s)
	case "listener":
		v.Listeners = view.Listeners(s)
	default:
		v.rows(kind).Set((&resourceInfo{Objects: s.Objects}).rows(kind))
	}
	rows := v.rows(kind)
	if rows.IsNil() {
		rows.Set(reflect.MakeSlice(rows.Type(), 0, 0))
	}
	for i := range rows.Len() {
		if o := rows.Index(i).FieldByName("Owner"); o.IsValid() {
			nameProcess(o.Addr().Interface().(*control.Owner))
		}
	}
	f.apply(rows)
	return v
}

// nameProcess sets the name of an owner's process, from /proc as rdma does. It is empty if the process has exited.
func nameProcess(o *control.Owner) {
	if o.Pid != 0 {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", o.Pid))
		o.Comm = strings.TrimSuffix(string(b), "\n")
	}
}

func makeCMIDs(s *control.Snapshot) (rows []cmRow) {
	add := func(p control.Port, qp control.Handle, state string, local, remote netip.AddrPort,
		o control.Owner) {
		r := cmRow{Port: p, Type: "RC", QP: qp, State: state, Space: "TCP",
			SrcAddr: local.Addr().String(), SrcPort: local.Port(), Owner: o}
		if remote.IsValid() {
			r.DstAddr, r.DstPort = remote.Addr().String(), remote.Port()
		}
		rows = append(rows, r)
	}
	for _, l := range view.Listeners(s) {
		add(l.Port, 0, "LISTEN", l.Addr, netip.AddrPort{}, l.Owner)
	}
	for _, q := range s.QPs {
		state := q.State
		if state == "RTS" {
			state = "CONNECT"
		}
		if q.Remote.IsValid() {
			add(q.Port, q.Handle, state, q.Local, q.Remote, q.Owner)
		}
	}
	return rows
}

func writeResources(w io.Writer, r resourceInfo) error {
	if r.Counts != nil {
		return writeRow(w, *r.Counts)
	}
	return writeRows(w, r.rows(r.Kind).Interface())
}

// writeRows prints a list of rows.
func writeRows(w io.Writer, list any) error {
	rows := reflect.ValueOf(list)
	for i := range rows.Len() {
		if err := writeRow(w, rows.Index(i).Interface()); err != nil {
			return err
		}
	}
	return nil
}
