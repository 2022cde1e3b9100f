package libxwarpverbs_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"xwarp/bpf/needs"
	"xwarp/engine/daemon/control"
)

// rdma runs iproute2's rdma and returns its objects, with values as text.
func (e *end) rdma(t *testing.T, line string) (rows []map[string]string) {
	t.Helper()
	out := e.start(t, "rdma -j "+line, e).wait(t)
	d := json.NewDecoder(strings.NewReader(out))
	d.UseNumber()
	var values []map[string]any
	if err := d.Decode(&values); err != nil {
		t.Fatalf("rdma -j %s: %v\n%s", line, err, out)
	}
	for _, v := range values {
		row := map[string]string{}
		for key, x := range v {
			row[key] = fmt.Sprint(x)
		}
		rows = append(rows, row)
	}
	return rows
}

// TestRDMATool compares the output of iproute2's rdma with ibv_devinfo and with the state of the daemon. Renaming a
// device must be refused, and without a daemon rdma must fail.
func TestRDMATool(t *testing.T) {
	a, b := pair(t)
	server := a.start(t, "rping -s -a 0.0.0.0", b)
	a.listening(t, server)
	client := b.start(t, "rping -c -a @ -C 100000000", a)
	a.until(t, server, "is connected", func() bool {
		s := a.daemon.Snapshot()
		return len(s.QPs) == 1 && s.QPs[0].State == "RTS" && len(s.MRs) > 2
	})
	s := a.daemon.Snapshot()
	q := &s.QPs[0]
	for _, style := range []string{"iwarp", "roce"} {
		e := *a
		e.env = append(e.env, "XWARP_STYLE="+style)
		info := e.start(t, "ibv_devinfo -v", b).wait(t)
		d := e.rdma(t, "dev show xwarp_eth0")[0]
		for name, want := range map[string]string{
			"node_guid": devinfo(info, "node_guid"), "fw": devinfo(info, "fw_ver"),
			"sys_image_guid": devinfo(info, "sys_image_guid"),
			"node_type":      map[string]string{"iwarp": "rnic", "roce": "ca"}[style],
		} {
			if d[name] != want {
				t.Errorf("%s: rdma dev shows %s %v, ibv_devinfo %v", style, name, d[name], want)
			}
		}
		l := e.rdma(t, "link")[0]
		if !strings.Contains(devinfo(info, "state"), l["state"]) ||
			l["physical_state"] != "LINK_UP" || l["netdev"] != "eth0" {
			t.Errorf("%s: rdma link shows %v", style, l)
		}
	}
	for _, c := range []struct {
		kind, key string
		want      any
	}{
		{"qp", "lqpn", []uint32{q.Number}},
		{"cq", "cqn", each(s.CQs, func(c control.CQState) any { return c.Handle })},
		{"mr", "mrn", each(s.MRs, func(m control.MRState) any { return m.Handle })},
		{"pd", "pdn", each(s.PDs, func(p control.PDState) any { return p.Handle })},
		{"ctx", "ctxn", each(s.Sessions, func(p control.SessionState) any { return p.Session })},
		{"cm_id", "state", append(each(s.Listeners, func(control.ListenerState) any {
			return "LISTEN"
		}), "CONNECT")},
		{"srq", "srqn", []any{}},
	} {
		rows := a.rdma(t, "resource show "+c.kind)
		got := each(rows, func(r map[string]string) any { return r[c.key] })
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("rdma resource show %s: %v, want %v", c.kind, rows, c.want)
		}
		for _, r := range rows {
			if r["pid"] != fmt.Sprint(server.Process.Pid) || r["comm"] != "rping" {
				t.Errorf("%s is of %v %v", c.kind, r["pid"], r["comm"])
			}
		}
		if n := a.rdma(t, "resource show")[0][c.kind]; n != fmt.Sprint(len(got)) {
			t.Errorf("rdma resource show counts %v %s, want %d", n, c.kind, len(got))
		}
	}
	one := fmt.Sprintf("resource show qp link xwarp_eth0/1 lqpn %d", q.Number)
	if r := a.rdma(t, one); len(r) != 1 || r[0]["state"] != "RTS" || r[0]["type"] != "RC" {
		t.Errorf("rdma %s: %v", one, r)
	}
	conn := a.rdma(t, "resource show cm_id dst-addr "+b.addr)
	if len(conn) != 1 || conn[0]["state"] != "CONNECT" || conn[0]["ps"] != "TCP" ||
		conn[0]["src-addr"] != q.Local.String() || conn[0]["dst-addr"] != q.Remote.String() {
		t.Errorf("the connection is %v", conn)
	}
	before := a.values("rdma")
	stat := a.rdma(t, "statistic show link xwarp_eth0/1")[0]
	after := a.values("rdma")
	for _, name := range slices.Sorted(maps.Keys(before)) {
		n, err := strconv.ParseUint(stat[name], 10, 64)
		if err != nil || n < before[name] || n > after[name] {
			t.Errorf("%s is %d, and was %d before and %d after", name, n, before[name], after[name])
		}
	}
	if before["payload_in"] == 0 {
		t.Error("nothing was counted")
	}
	p := a.start(t, "rdma dev set xwarp_eth0 name other", b)
	if out := p.end(t); p.err == nil || !strings.Contains(out, "Operation not supported") {
		t.Errorf("a device was renamed: %v %s", p.err, out)
	}
	client.Process.Kill()

	gone := *a
	gone.socket += ".gone"
	p = gone.start(t, "rdma link", b)
	if out := p.end(t); p.err == nil || !strings.Contains(out, "is xwarpd running") {
		t.Errorf("without a daemon: %v %s", p.err, out)
	}
}

// each returns a value for each element.
func each[T any](list []T, of func(T) any) (all []any) {
	for _, v := range list {
		all = append(all, of(v))
	}
	return all
}

// devinfo returns a value that ibv_devinfo printed.
func devinfo(out, name string) string {
	_, rest, _ := strings.Cut(out, name+":")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}

// TestNetlinkProgram sends several queries before it receives, with a buffer for one reply, by each call that sends,
// with and without an address. Other netlink messages of a program must go to the kernel.
func TestNetlinkProgram(t *testing.T) {
	a, _ := pair(t)
	for _, kind := range []string{"plain", "sanitized"} {
		t.Run(kind, func(t *testing.T) {
			if kind == "sanitized" {
				needs.Long(t)
				a.sanitize(t)
			}
			out := a.start(t, python+" "+script(t, "netlink.py"), a).wait(t)
			if out != "Message too long\nTrue\n" {
				t.Error(out)
			}
		})
	}
}
