package daemon_test

import (
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/engine/daemon"
	"xwarp/engine/daemon/control"
	"xwarp/engine/testkit/havoc"
)

// sessionOps are the requests that FuzzSession makes, with their arguments: $1 and $2 are handles or small numbers, $3
// is a small number and $4 any number.
var sessionOps = []struct {
	op    control.Op
	args  string
	waits bool // the reply may come late, so the program does not wait for it
	file  bool
}{
	{control.OpAllocPD, ``, false, false},
	{control.OpFreePD, `{"handle":$1}`, false, false},
	{control.OpRegMR, `{"pd":$1,"offset":0,"length":4096,"access":$2}`, false, true},
	{control.OpRegMR, `{"pd":$1,"offset":$4,"length":$4,"access":$2}`, false, true},
	{control.OpDeregMR, `{"handle":$1}`, false, false},
	{control.OpCreateCQ, `{"depth":$3}`, false, false},
	{control.OpCreateCQ, `{"depth":$4}`, false, false},
	{control.OpDestroyCQ, `{"handle":$1}`, false, false},
	{control.OpCreateQP, `{"pd":$1,"send_cq":$2,"recv_cq":$2}`, false, false},
	{control.OpCreateQP, `{"pd":$1,"send_cq":$2,"recv_cq":$3,"max_sge":$4}`, false, false},
	{control.OpDestroyQP, `{"handle":$1}`, false, false},
	{control.OpQueryQP, `{"handle":$1}`, false, false},
	{control.OpDisconnect, `{"handle":$1}`, false, false},
	{control.OpResolve, `{"remote":"127.0.0.1:1","timeout_ms":$4}`, true, false},
	{control.OpConnect, `{"qp":$1,"local":"127.0.0.1:0","remote":"127.0.0.1:1"}`, true, false},
	{control.OpConnect, `{"qp":$1,"local":"","remote":"127.0.0.1:1","ird":$3,"ord":$4}`, true, false},
	{control.OpConnect, `{"qp":$1,"local":"","remote":"127.0.0.1:$4"}`, true, false},
	{control.OpListen, `{"addr":"127.0.0.1:0","backlog":$2}`, false, false},
	{control.OpCloseListener, `{"handle":$1}`, false, false},
	{control.OpGetRequest, `{"handle":$1}`, true, false},
	{control.OpAccept, `{"handle":$1,"qp":$2,"ird":$3,"ord":$4}`, true, false},
	{control.OpReject, `{"handle":$1}`, false, false},
	{control.OpCancel, `{"id":$1}`, false, false},
	{control.OpState, ``, true, false},
	{control.OpEvents, ``, true, false},
	{control.OpEvents, `{"after":$3}`, true, false},
	{control.OpNetlink, `{"request":"EAAAAAEUBQMBAAAAAAAAAA==","style":"roce"}`, true, false},
	{control.OpFlush, `{"export":"x"}`, true, false},
	{control.OpCapture, `{}`, false, false},
	{control.OpEndCapture, `{"handle":$1}`, true, false},
	{control.OpConfirm, ``, false, false},
	{control.OpReload, ``, true, false},
	{control.OpAllocMW, `{"pd":$1}`, false, false},
	{control.OpDeallocMW, `{"handle":$1}`, false, false},
	{control.OpModifyQP, `{"handle":$1,"access":$2}`, false, false},
	{control.OpQueryGIDs, ``, false, false},
	{control.OpSetState, `{"qp":$1,"state":"rtr","local_gid":"127.0.0.1","remote_gid":"127.0.0.1",
		"remote_qpn":$3,"ird":$2,"rnr_timer":$3}`, false, false},
	{control.OpSetState, `{"qp":$1,"state":"rtr","local_gid":"127.0.0.1","remote_gid":"::$3",
		"remote_qpn":$4}`, false, false},
	{control.OpSetState, `{"qp":$1,"state":"rts","timeout":$2,"retry_cnt":$3,"rnr_retry":$3}`,
		false, false},
	{control.OpSetState, `{"qp":$1,"state":"sqd"}`, false, false},
	{control.OpSetState, `{"qp":$1,"state":"err"}`, false, false},
	{control.OpSetState, `{"qp":$1,"state":"reset"}`, false, false},
	{control.OpHello, fmt.Sprintf(`{"version":%d}`, control.Version), false, false},
}

// ask returns the bytes that make a mad program send the nth request for an op of sessionOps. args select the values of
// $4, $1, $2 and $3, in this order.
func ask(op control.Op, nth int, args ...byte) []byte {
	for i := range sessionOps {
		if sessionOps[i].op != op {
			continue
		}
		if nth--; nth < 0 {
			b := [5]byte{byte(i)}
			copy(b[1:], args)
			return b[:]
		}
	}
	panic(op)
}

// makeQP returns the bytes that make a mad program create a protection domain, a completion queue and a queue pair. The
// greeting consumes the first four.
func makeQP() []byte {
	return slices.Concat(ask(control.OpHello, 0)[1:], ask(control.OpAllocPD, 0),
		ask(control.OpCreateCQ, 0, 0, 0, 0, 16), ask(control.OpCreateQP, 0, 0, 0, 1))
}

// mad is a program driven by fuzz input.
type mad struct {
	t       testing.TB
	sock    *net.UnixConn
	c       *control.Socket
	in      []byte
	id      uint64
	handles []control.Handle
	files   []int
	maps    [][]byte
	memory  int
}

func (m *mad) u8() int {
	if len(m.in) == 0 {
		return 0
	}
	v := m.in[0]
	m.in = m.in[1:]
	return int(v)
}

// handle usually returns a handle that the daemon created, otherwise any small number.
func (m *mad) handle() int {
	b := m.u8()
	if len(m.handles) == 0 || b >= 240 {
		return b
	}
	return int(m.handles[b%len(m.handles)])
}

// request sends one request and receives its reply, unless the request waits. It returns false when the session has
// ended.
func (m *mad) request(n int) bool {
	o := &sessionOps[n%len(sessionOps)]
	number := []int64{0, 1, -1, 4096, 1 << 20, 1 << 31, 1 << 62, -1 << 63, 65535}[m.u8()%9]
	args := strings.NewReplacer("$1", strconv.Itoa(m.handle()), "$2", strconv.Itoa(m.handle()),
		"$3", strconv.Itoa(m.u8()), "$4", strconv.FormatInt(number, 10)).Replace(o.args)
	m.id++
	var files []int
	if o.file {
		files = []int{m.memory}
	}
	r := control.Request{ID: m.id, Op: o.op, Args: json.RawMessage(args)}
	if m.c.Send(control.KindRequest, control.Marshal(r), files...) != nil {
		return false
	}
	for !o.waits {
		k, body, out, err := m.c.Receive()
		if err != nil {
			return false
		}
		if m.files = append(m.files, out...); k != control.KindReply {
			continue
		}
		reply, err := control.ParseReply(body)
		if err != nil {
			m.t.Fatal(err)
		}
		if reply.ID == m.id {
			m.result(o.op, &reply, out)
			return true
		}
	}
	return true
}

// result records the handle of a reply, and maps its memory.
func (m *mad) result(op control.Op, r *control.Reply, files []int) {
	if r.Error != nil {
		return
	}
	var o control.Object
	if json.Unmarshal(r.Result, &o) == nil && o.Handle != 0 {
		m.handles = append(m.handles, o.Handle)
	}
	if len(files) > 0 && op != control.OpCapture {
		m.mapFile(files[0])
	}
}

func (m *mad) mapFile(fd int) {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Size == 0 {
		return
	}
	mem, err := unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_POPULATE)
	if err == nil {
		m.maps = append(m.maps, mem)
	}
}

// poke writes four bytes to a random place in shared memory, and rings doorbells.
func (m *mad) poke() {
	mem := m.maps[m.u8()%len(m.maps)]
	at := []int{0, 64, 128, 132, 192, 196, 200, 204, 208, 216, 224, 4096, 4096 + 64}[m.u8()%13]
	v := []uint32{0, 1, 2, 3, 15, 16, 17, 64, 1 << 31, 1<<32 - 1}[m.u8()%10]
	if at+4 <= len(mem) {
		binary.LittleEndian.PutUint32(mem[at:], v)
	}
	for bell := range uint32(4) {
		control.RingBell(m.maps[0], bell)
	}
	unix.Write(m.files[1], []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

func (m *mad) close() {
	m.sock.Close()
	control.CloseAll(m.files)
	for _, mem := range m.maps {
		unix.Munmap(mem)
	}
	unix.Close(m.memory)
}

// FuzzSession runs mad programs. Each sends any sequence of requests with handles of every kind, corrupts the rings and
// the doorbell in between, and leaves at any moment. The daemon must still serve the next program, and must release
// everything of a program that ended.
func FuzzSession(f *testing.F) {
	all := makeQP()
	f.Add(all)
	for _, more := range [][]byte{
		append([]byte{250, 2, 0, 5}, ask(control.OpConnect, 0, 0, 2)...),
		append([]byte{250, 2, 0, 9}, ask(control.OpQueryQP, 0, 0, 2)...),
		slices.Concat(ask(control.OpListen, 0), ask(control.OpGetRequest, 0, 0, 3),
			ask(control.OpConnect, 1, 5, 2), ask(control.OpCancel, 0, 0, 200),
			ask(control.OpCloseListener, 0, 0, 3)),
		slices.Concat([]byte{249, 2, 1}, ask(control.OpRegMR, 0, 0, 0, 1),
			ask(control.OpDeregMR, 0, 0, 3), ask(control.OpState, 0),
			ask(control.OpCapture, 0)),
		slices.Concat(ask(control.OpQueryGIDs, 0), ask(control.OpSetState, 0, 0, 2, 0, 7),
			ask(control.OpSetState, 2, 0, 2, 1, 7), ask(control.OpSetState, 3, 0, 2),
			ask(control.OpSetState, 4, 0, 2), ask(control.OpSetState, 5, 0, 2),
			ask(control.OpSetState, 1, 3, 2, 0, 1), ask(control.OpSetState, 5, 0, 2)),
	} {
		f.Add(append(slices.Clone(all), more...))
	}
	cfg, socket := load(f, "[[interface]]\nname = \"lo\"\ntransport = \"kernel\"\n")
	d, err := daemon.New(cfg, daemon.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { d.Close() })
	if _, _, objects := gone(f, d, socket, all); objects != 3 {
		f.Fatalf("the seed makes %d objects, and not 3", objects)
	}
	havoc.Fuzz(f, func(t *testing.T, in []byte) { // one daemon for all inputs, so that leftovers affect later ones
		gone(t, d, socket, in)
	})
}

// gone runs a mad program to its end and waits until the daemon has released everything. It returns the number of
// requests, corruptions (lies) and created objects.
func gone(t testing.TB, d *daemon.Daemon, socket string, in []byte) (requests, lies, objects int) {
	sock, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	m := &mad{t: t, sock: sock, c: control.NewSocket(sock, control.MaxReply), in: in}
	defer m.close()
	sock.SetDeadline(time.Now().Add(30 * time.Second))
	if m.memory, err = unix.MemfdCreate("fuzz", unix.MFD_ALLOW_SEALING); err != nil {
		t.Fatal(err)
	}
	unix.Ftruncate(m.memory, 8192)
	if !m.request(len(sessionOps)-1) || len(m.maps) != 1 {
		t.Fatal("the daemon does not greet")
	}
	for n, talks := 0, true; talks && len(m.in) > 0 && n < 40; n++ {
		switch op := m.u8(); {
		case op >= 250:
			m.poke()
			lies++
		case op == 249:
			unix.Ftruncate(m.memory, int64(m.u8()%3)*4096)
			unix.Fallocate(m.memory, 0, 0, int64(m.u8()%3+1)*4096)
			lies++
		default:
			requests++
			talks = m.request(op)
		}
	}
	m.sock.Close()
	if _, ok := eventually(func() bool { return nothingLeft(d) }); !ok {
		s := d.Snapshot()
		t.Fatalf("%d sessions, %d queue pairs, %d listeners, users %+v", len(s.Sessions),
			len(s.QPs),
			len(s.Listeners), s.Users)
	}
	return requests, lies, len(m.handles)
}

var (
	madRequests = flag.Int("mad", 1000, "how many `requests` and lies TestMadPrograms makes")
	madSeed     = flag.Uint64("mad.seed", 1, "`seed` of its first program; the others count on")
)

// TestMadPrograms runs many mad programs one after another with random input. It makes more requests in the same time
// than a fuzzer, which spends its time on coverage.
func TestMadPrograms(t *testing.T) {
	cfg, socket := load(t, "[[interface]]\nname = \"lo\"\ntransport = \"kernel\"\n")
	d, err := daemon.New(cfg, daemon.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	requests, lies, seed := 0, 0, *madSeed
	defer func() {
		if t.Failed() {
			t.Logf("again: -mad 1 -mad.seed %d", seed)
		}
	}()
	for ; requests+lies < *madRequests; seed++ {
		r := rand.New(rand.NewPCG(seed, 0))
		in := make([]byte, len(makeQP())+r.IntN(200))
		for i := range in {
			if in[i] = byte(r.Uint32()); r.IntN(6) == 0 {
				in[i] = 250 // a corruption at the start of a request
			}
		}
		if r.IntN(4) > 0 { // most have memory to corrupt
			copy(in, makeQP())
		}
		n, m, _ := gone(t, d, socket, in)
		requests, lies = requests+n, lies+m
	}
	t.Logf("%d requests and %d lies of %d programs", requests, lies, seed-*madSeed)
}

// nothingLeft reports whether a daemon without exports has released everything of its programs.
func nothingLeft(d *daemon.Daemon) bool {
	s := d.Snapshot()
	for _, u := range s.Users {
		if u.Used != 0 {
			return false
		}
	}
	return len(s.Sessions)+len(s.QPs)+len(s.Listeners)+len(s.MRs)+len(s.CQs) == 0
}
