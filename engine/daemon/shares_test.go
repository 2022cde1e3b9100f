package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/engine/budget"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
	"xwarp/engine/testkit/rawclient"
	"xwarp/engine/testkit/verbstest"
	"xwarp/tcp/tick"
)

// daemonFor is daemonOn with a socket that all users may use, additional keys of [daemon], and additional tables.
func daemonFor(t *testing.T, keys, text string) (d *Daemon, socket string) {
	t.Helper()
	dir := t.TempDir()
	for at := dir; at != os.TempDir(); at = filepath.Dir(at) {
		os.Chmod(at, 0o755)
	}
	path, socket := filepath.Join(dir, "xwarp.toml"), filepath.Join(dir, "socket")
	text = fmt.Sprintf("[daemon]\nsocket = %q\nsocket_mode = \"0666\"\ngrace = \"100ms\"\n%s"+
		"[[interface]]\nname = \"lo\"\ntransport = \"kernel\"\n%s", socket, keys, text)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(config.Source{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if d, err = New(cfg, Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d, socket
}

// as runs f on a thread with the effective UID of another user. The kernel reports that UID as the owner of its
// sockets.
func as(t *testing.T, uid uint32, f func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const same = ^uintptr(0)
	set := func(uid uintptr) {
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, same, uid, same); e != 0 {
			t.Fatal(e)
		}
	}
	set(uintptr(uid))
	defer set(0)
	f()
}

// program opens a session as a user.
func program(t *testing.T, socket string, uid uint32) (dev *client.Device, err error) {
	t.Helper()
	as(t, uid, func() { dev, err = client.Open(socket) })
	if err == nil {
		t.Cleanup(func() { dev.Close() })
	}
	return dev, err
}

// unlimited are budget.Limits without limits.
type unlimited struct{}

func (unlimited) Of(budget.Kind) int64 { return 1 << 60 }

// fill makes one user after another take as many objects of a kind as its share allows.
func fill(d *Daemon, k budget.Kind, users int) {
	var want budget.Amounts
	for uid := range uint32(users) {
		for want[k] = 1 << 50; want[k] > 0; {
			who := budget.Holder{UID: 1000 + uid}
			if _, err := d.users.Enter(who, unlimited{}, want); err != nil {
				want[k] /= 2
			}
		}
	}
}

// TestFullForOthers: however much users have taken of a shared resource, another user can work, and the operator can
// read the status and confirm.
func TestFullForOthers(t *testing.T) {
	for k := range budget.Kinds {
		if k.Remedy() == "" {
			continue // not shared between users
		}
		t.Run(k.String(), func(t *testing.T) {
			d, socket := daemonFor(t, "confirm = \"1h\"\n", "")
			fill(d, k, 40)
			dev, err := program(t, socket, 70_000)
			if err != nil {
				t.Fatal(err)
			}
			verbstest.New(t, dev, 4096)
			operator, err := client.OpenConfig(client.Config{Path: socket, Operator: true})
			if err != nil {
				t.Fatal(err)
			}
			defer operator.Close()
			fill(d, k, 1000)
			more, err := client.OpenConfig(client.Config{Path: socket, Operator: true})
			if err != nil {
				t.Fatal(err)
			}
			defer more.Close()
			if s, err := operator.Snapshot(t.Context()); err != nil || len(s.Sessions) < 2 {
				t.Errorf("the operator sees %d sessions, %v", len(s.Sessions), err)
			}
			if _, err := operator.Confirm(t.Context()); err != nil {
				t.Error(err)
			}
			verbstest.New(t, operator, 4096)
		})
	}
}

// TestSubordinateUsers: a user with many subordinate UIDs has one account, with the limits of one user.
func TestSubordinateUsers(t *testing.T) {
	d, socket := daemonFor(t, "",
		"[limits]\nsessions = 4\n[[user]]\nname = \"65534\"\nsessions = 6\n")
	file := filepath.Join(t.TempDir(), "subuid")
	if err := os.WriteFile(file, []byte("nobody:100000:65536\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	d.uidOwners.mu.Lock()
	d.uidOwners.file = file
	d.uidOwners.mu.Unlock()
	var list []*client.Device
	for uid := uint32(100_000); ; uid++ {
		dev, err := program(t, socket, uid)
		if err != nil {
			if !strings.Contains(err.Error(), "user 65534 has 6 of at most 6 sessions") {
				t.Error(err)
			}
			break
		}
		list = append(list, dev)
	}
	if len(list) != 6 {
		t.Errorf("%d sessions", len(list))
	}
	if _, err := program(t, socket, 65534); err == nil {
		t.Error("their owner has another session, beyond his limit")
	}
	if _, err := program(t, socket, 1234); err != nil {
		t.Errorf("another user: %v", err)
	}
	if list := d.Snapshot().Users; !slices.ContainsFunc(list, func(u control.UserState) bool {
		return u.UID == 65534 && u.Resource == "sessions" && u.Used == 6
	}) {
		t.Errorf("%+v", list)
	}
}

// TestUsersComeAndGo: after many users have come and gone, a snapshot has at most budget.MaxIdleUsers of them. After
// budget.UserIdle, snapshots and metrics have their original size.
func TestUsersComeAndGo(t *testing.T) {
	web := filepath.Join(t.TempDir(), "web")
	d, socket := daemonFor(t, "", fmt.Sprintf("[http]\nlisten = %q\n", web))
	browser := http.Client{Transport: &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return net.Dial("unix", web)
		}}}
	defer browser.CloseIdleConnections()
	size := func() (users, lines int) {
		t.Helper()
		r, err := browser.Get("http://localhost/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err != nil || r.StatusCode != http.StatusOK {
			t.Fatalf("status %d, %v", r.StatusCode, err)
		}
		return len(d.Snapshot().Users) / int(budget.Kinds), bytes.Count(b, []byte("\n"))
	}
	var skipped atomic.Int64
	d.mu.Lock()
	d.users = budget.NewUsers(processors, func() tick.Time {
		return uptime() + tick.Time(skipped.Load())
	})
	d.setUserBounds(d.cfg.Load())
	d.mu.Unlock()
	users, lines := size()
	for uid := range uint32(budget.MaxIdleUsers + 100) {
		dev, err := program(t, socket, 1000+uid)
		if err != nil {
			t.Fatal(err)
		}
		dev.Close()
	}
	eventually(t, "end of the sessions", func() bool { return len(d.allSessions()) == 0 })
	if n, _ := size(); n > budget.MaxIdleUsers {
		t.Errorf("%d users without objects are shown", n)
	}
	skipped.Store(int64(budget.UserIdle + time.Second))
	if n, l := size(); n != users || l != lines {
		t.Errorf("%d users, %d lines of metrics, before %d and %d", n, l, users, lines)
	}
}

// accountsOf returns the sum of the amounts in all accounts.
func accountsOf(d *Daemon) (n budget.Amounts) {
	all := func(budget.Holder) bool { return true }
	none := func(budget.Holder) budget.Limits { return new(config.Limits) }
	for _, a := range d.users.State(none, all) {
		for k := range a.Used {
			n[k] += a.Used[k]
		}
	}
	return n
}

// memfds counts the mappings of shared memory of this process, from the kernel's list.
func memfds(t *testing.T) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return int64(bytes.Count(b, []byte("/memfd:")))
}

// openFiles counts the descriptors of this process.
func openFiles(t *testing.T) int64 {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return int64(len(list))
}

// call sends a request with descriptors, and returns the new handle. With pages, it touches all pages of returned
// shared memory.
func call(t *testing.T, r *rawclient.Client, op control.Op, pages bool, args string, files ...int) (
	control.Handle, error) {
	t.Helper()
	reply, got, err := r.Exchange(op, json.RawMessage(args), files...)
	defer control.CloseAll(got)
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if pages && len(got) > 0 && unix.Fstat(got[0], &st) == nil {
		unix.Pwrite(got[0], make([]byte, st.Size), 0)
	}
	if reply.Error != nil {
		return 0, reply.Error
	}
	var o control.Object
	json.Unmarshal(reply.Result, &o)
	return o.Handle, nil
}

// region returns a memfd of 4096 bytes whose page is allocated.
func region(t *testing.T) int {
	t.Helper()
	fd, err := unix.MemfdCreate("region", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err == nil {
		_, err = unix.Pwrite(fd, make([]byte, 4096), 0)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// TestAccountsCountTheProcess: after every request, the process has exactly as many mappings of shared memory as its
// accounts count, and at most as many descriptors, by the kernel's lists. The program itself maps nothing.
func TestAccountsCountTheProcess(t *testing.T) {
	d, socket := daemonFor(t, "", "[limits]\nqps = 3\n")
	fd, null := region(t), int(openNull(t))
	maps, files := memfds(t), openFiles(t)
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	r := &rawclient.Client{Socket: control.NewSocket(c.(*net.UnixConn), control.MaxRequest)}
	defer r.Close()
	version := fmt.Sprintf(`{"version":%d}`, control.Version)
	if _, err := call(t, r, control.OpHello, true, version); err != nil {
		t.Fatal(err)
	}
	files++ // the program's end of the socket
	var before budget.Amounts
	check := func(what string) (made budget.Amounts) {
		t.Helper()
		n := accountsOf(d)
		if have := memfds(t) - maps; have != n[budget.Mappings] {
			t.Errorf("%s: %d mappings, %d by accounts", what, have, n[budget.Mappings])
		}
		have := openFiles(t) - files
		for tries := 0; have > n[budget.Descriptors] && tries < 200; tries++ {
			time.Sleep(5 * time.Millisecond) // the daemon closes descriptors after sending them
			have = openFiles(t) - files
		}
		if have > n[budget.Descriptors] {
			t.Errorf("%s: %d descriptors, %d by accounts", what, have, n[budget.Descriptors])
		}
		for k := range n {
			made[k] = n[k] - before[k]
		}
		before = n
		return made
	}
	check("a session")
	must := func(op control.Op, args string, files ...int) control.Handle {
		t.Helper()
		h, err := call(t, r, op, true, args, files...)
		if err != nil {
			t.Fatalf("%s: %v", op, err)
		}
		made := check(string(op))
		var objects budget.Amounts // without mappings and descriptors
		for k := range budget.Limited {
			objects[k] = max(made[k], 0)
		}
		needs := objects.Needs()
		for _, k := range []budget.Kind{budget.Mappings, budget.Descriptors} {
			if made[k] > needs[k] && op != control.OpResizeCQ {
				t.Errorf("%s: %d %v are more than the %d of what checks count with", op, made[k],
					k, needs[k])
			}
		}
		return h
	}
	pd := must(control.OpAllocPD, "{}")
	var cqs, qps []control.Handle
	for range 3 {
		cqs = append(cqs, must(control.OpCreateCQ, `{"depth":8}`))
	}
	for _, cq := range cqs {
		must(control.OpResizeCQ, fmt.Sprintf(`{"handle":%d,"depth":16}`, cq))
		must(control.OpResizeCQ, fmt.Sprintf(`{"handle":%d,"depth":32}`, cq)) // it replaces the pending resize
	}
	must(control.OpResizeCQ, fmt.Sprintf(`{"handle":%d}`, cqs[0]))
	srq := must(control.OpCreateSRQ, fmt.Sprintf(`{"pd":%d,"depth":8}`, pd))
	mr := must(control.OpRegMR, fmt.Sprintf(`{"pd":%d,"length":4096,"access":1}`, pd), fd)
	must(control.OpAllocMW, fmt.Sprintf(`{"pd":%d}`, pd))
	qp := fmt.Sprintf(`{"pd":%d,"send_cq":%d,"recv_cq":%d}`, pd, cqs[0], cqs[0])
	for range 3 {
		qps = append(qps, must(control.OpCreateQP, qp))
	}
	listener := must(control.OpListen, `{"addr":"127.0.0.1:0"}`)
	for op, args := range map[control.Op]string{
		control.OpCreateQP: qp, control.OpCreateCQ: `{"depth":1000000000}`,
		control.OpRegMR: fmt.Sprintf(`{"pd":%d,"length":4096,"access":1}`, pd),
	} {
		var with []int
		if op == control.OpRegMR {
			with = append(with, null)
		}
		if _, err := call(t, r, op, false, args, with...); err == nil {
			t.Errorf("%s %s is taken", op, args)
		}
		check("refused " + string(op))
	}
	must(control.OpDestroyQP, fmt.Sprintf(`{"handle":%d}`, qps[0]))
	must(control.OpDeregMR, fmt.Sprintf(`{"handle":%d}`, mr))
	must(control.OpDestroySRQ, fmt.Sprintf(`{"handle":%d}`, srq))
	must(control.OpDestroyCQ, fmt.Sprintf(`{"handle":%d}`, cqs[2])) // its resize is pending
	must(control.OpCloseListener, fmt.Sprintf(`{"handle":%d}`, listener))
	r.Close()
	eventually(t, "empty accounts", func() bool { return accountsOf(d) == budget.Amounts{} })
	files--
	check("everything is gone")
}

// openNull returns a descriptor that is not memory.
func openNull(t *testing.T) uintptr {
	t.Helper()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f.Fd()
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no " + what)
		}
	}
}
