package daemon_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/control"
)

func init() { roles["rings"] = ringsRole }

// TestUnrungQueuePair: the daemon polls exactly those queue pairs whose doorbell rang.
func TestUnrungQueuePair(t *testing.T) {
	_, socket := kernel(t, "")
	r := dialRaw(t, socket)
	session := r.hello()
	bells := mapping(t, session[0])
	var pd, cq control.Object
	r.must(&pd, control.OpAllocPD, "")
	control.CloseAll(r.must(&cq, control.OpCreateCQ, `{"depth":16}`))
	var mems [40][]byte
	var qps [40]control.CreateQPResult
	for i := range qps {
		files := r.must(&qps[i], control.OpCreateQP,
			string(control.Marshal(control.CreateQPArgs{PD: pd.Handle, SendCQ: cq.Handle,
				RecvCQ: cq.Handle})))
		mems[i] = mapping(t, files[0])
		control.CloseAll(files)
		if int(qps[i].Bell) != i {
			t.Fatalf("queue pair %d has bell %d", i, qps[i].Bell)
		}
	}
	taken := func(i int) bool { return mems[i][qps[i].Recv.Offset+64] == 1 }
	post := func(i int) {
		mems[i][qps[i].Recv.Offset+192+8] = 0
		poke(mems[i], qps[i].Recv.Offset, 1)
	}
	for i := range qps {
		post(i)
	}
	for _, i := range []int{0, 31, 32, 39} {
		ring(t, session, qps[i].Bell)
		if _, ok := eventually(func() bool { return taken(i) }); !ok {
			t.Errorf("queue pair %d rang and is not looked at", i)
		}
	}
	if taken(5) || taken(33) {
		t.Error("queue pairs are looked at that did not ring")
	}
	for i := range bells[64:] { // including bits without a queue pair
		bells[64+i] = 0xFF
	}
	unix.Write(session[1], []byte{1, 0, 0, 0, 0, 0, 0, 0})
	for i := range qps {
		if _, ok := eventually(func() bool { return taken(i) }); !ok {
			t.Errorf("queue pair %d rang and is not looked at", i)
		}
	}
	r.must(nil, control.OpDestroyQP, string(control.Marshal(control.Object{Handle: qps[7].Handle})))
	control.RingBell(bells, 7) // a late ring, as of a thread that posts while another destroys the queue pair
	var again control.CreateQPResult
	files := r.must(&again, control.OpCreateQP,
		string(control.Marshal(control.CreateQPArgs{PD: pd.Handle, SendCQ: cq.Handle,
			RecvCQ: cq.Handle})))
	if again.Bell != 7 {
		t.Errorf("bell %d, and 7 is free", again.Bell)
	}
	// The pages of the new ring with bell 7 are still missing. If the daemon looked at it because of the late ring of
	// the bell, the session would end.
	poke(mems[0], qps[0].Recv.Offset, 2)
	ring(t, session, 0)
	if _, ok := eventually(func() bool {
		return mems[0][qps[0].Recv.Offset+64] == 2
	}); !ok {
		t.Error("queue pair 0 rang again and is not looked at")
	}
	mem := mapping(t, files[0])
	poke(mem, again.Recv.Offset, 1)
	ring(t, session, 7)
	if _, ok := eventually(func() bool {
		return mem[again.Recv.Offset+64] == 1
	}); !ok {
		t.Error("the second queue pair of a bell is not looked at")
	}
}

// ringsRole is a program that rings the doorbells of its queue pairs without posting work. Its arguments: the socket,
// the number of queue pairs.
func ringsRole(args []string) error {
	f, err := newFoe(args[0])
	if err != nil {
		return err
	}
	var pd, cq control.Object
	_, err = f.ask(control.OpAllocPD, nil, &pd)
	if err == nil {
		_, err = f.ask(control.OpCreateCQ, control.CreateCQArgs{Depth: 4}, &cq)
	}
	n, _ := strconv.Atoi(args[1])
	for i := 0; i < n && err == nil; i++ {
		var files []int
		files, err = f.ask(control.OpCreateQP, control.CreateQPArgs{
			PD: pd.Handle, SendCQ: cq.Handle, RecvCQ: cq.Handle, SendDepth: 1, RecvDepth: 1,
			MaxSGE: 1, MaxInline: 1, IRD: 1, ORD: 1,
		}, nil)
		control.CloseAll(files)
	}
	if err != nil {
		return err
	}
	fmt.Println("begins")
	for {
		for i := range n / 8 {
			f.bell[64+i] = 0xFF
		}
		unix.Write(f.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		time.Sleep(100 * time.Microsecond)
	}
}

// processor returns the CPU time that a process has used.
func processor(t testing.TB, pid int) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')'):]))
	user, _ := strconv.Atoi(f[12])
	system, _ := strconv.Atoi(f[13])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// TestRingsForNothing: a program rings all its doorbells continuously without posting anything. In two seconds the
// daemon may use at most 600 ms of CPU time, and it must count that it rested.
func TestRingsForNothing(t *testing.T) {
	path, socket := writeConfig(t, "[[interface]]\nname = \"lo\"\ntransport = \"kernel\"\n")
	d := start(t, "/proc/self/exe", 0, "daemon", "/proc/self/ns/net", path)
	if got := d.line(); got != "ready" {
		t.Fatal(got)
	}
	p := start(t, "/proc/self/exe", 0, "rings", socket, "1024")
	if got := p.line(); got != "begins" {
		t.Fatal(got)
	}
	before := processor(t, d.Process.Pid)
	time.Sleep(2 * time.Second)
	used := processor(t, d.Process.Pid) - before
	t.Logf("%v of a processor in 2s", used)
	dev, err := client.Open(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	if s, err := dev.Snapshot(t.Context()); err != nil || s.Counters["doorbell_rests"] == 0 {
		t.Errorf("no rest is counted: %v, %v", s.Counters, err)
	}
	if used > 600*time.Millisecond {
		t.Errorf("%v of a processor in 2s", used)
	}
}
