package main

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"xwarp/bench/relay"
	"xwarp/bench/relay/impair"
	"xwarp/bench/topo"
	"xwarp/bpf/needs"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/control"
	"xwarp/tcp/tick"
)

var soakTime = flag.Duration("soak", 10*time.Second, "how long TestSoak goes on")

// soak is a daemon on one host with programs of two users, and a far host behind an impaired path whose links flap.
// The programs are killed and restarted.
type soak struct {
	*testing.T
	tn           *topo.Net
	relay        *relay.Relay
	dir, exe     string
	socket, file string
	daemon, far  *process
	watched      []*watched
	programs     []*soakProgram
	lives        int
	over         chan struct{}

	mu                    sync.Mutex
	again                 map[string]int // number of times that connections ended, by cause without digits
	kills, flaps, reloads int
}

// soakProgram is a program that the soak kills from time to time and restarts.
type soakProgram struct {
	name  string
	role  string
	tasks []string
	uid   uint32
	do    func(func() error) error
	args  func(life string) []string
	p     *process
	ends  chan error // receives the exit of the current incarnation

	mu        sync.Mutex
	killed    bool
	byteCount int
	progress  map[string]time.Time // time of the last progress of each task
	longest   time.Duration        // longest time without progress
}

// Users of the programs, without privileges.
const userA, userB = 65534, 65533

// longestPause is the maximum time that a task may make no progress. It includes a kill, a link flap, and a corrupted
// length field with no data behind it, which costs fpduTimeout.
const (
	longestPause = time.Minute
	fpduTimeout  = 20 * time.Second
)

// TestSoak runs xwarpd for the time of -soak, under the kills, reloads, link flaps and packet loss that a host sees in
// months. Every byte is compared. At the end no quantity of the daemon has grown, and no object is left.
func TestSoak(t *testing.T) {
	needs.Long(t)
	needs.XSK(t)
	needs.NetNS(t)
	s := &soak{T: t, dir: publicDir(t), exe: publicExe(t), over: make(chan struct{}),
		again: map[string]int{}}
	s.open()
	end := time.After(*soakTime)
	seconds := time.NewTicker(time.Second)
	defer seconds.Stop()
	for n := 1; ; n++ {
		select {
		case <-seconds.C:
		case <-end:
			s.close()
			return
		}
		s.disturb(n)
		if n%5 == 0 {
			s.sample()
		}
		if n%60 == 0 {
			s.line(n / 60)
		}
		if t.Failed() {
			s.close()
			return
		}
	}
}

// must ends the soak at once if err is not nil.
func (s *soak) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *soak) open() {
	var err error
	s.tn, err = topo.New(topo.Options{Relay: true, IPv4Only: true, OffloadsA: topo.NoOffloads,
		OffloadsB: topo.NoOffloads})
	s.must(err)
	s.Cleanup(func() { s.tn.Close() })
	s.relay, err = relay.Start(s.tn.Relay, relay.Config{Seed: rand.Uint64()})
	s.must(err)
	s.Cleanup(func() { s.relay.Close() })
	s.socket, s.file = filepath.Join(s.dir, "s"), filepath.Join(s.dir, "xwarp.toml")
	s.configure(0)
	state := func(name string) string { return filepath.Join(s.dir, name+".state") }
	a, b := s.tn.A.Addr4.Addr(), s.tn.B.Addr4.Addr()
	s.far = s.start(s.tn.B.Do, "far", state("far"), b.String(), "ii")
	if !s.far.out.Scan() || s.far.out.Text() != "ready" {
		s.Fatalf("the far host: %s", s.far.out.Text())
	}
	s.daemon = s.start(s.tn.A.Do, "xwarpd", state("xwarpd"), "-config", s.file)
	operator := s.operator()
	s.watched = []*watched{
		{name: "xwarpd", pid: s.daemon.Process.Pid, state: state("xwarpd"), daemon: operator},
		{name: "far host", pid: s.far.Process.Pid, state: state("far")},
	}
	both := []string{"xdp", "kernel"}
	var listeners []string
	for i, uid := range []uint32{userA, userB} {
		at := netip.AddrPortFrom(a, uint16(20000+i)).String()
		listeners = append(listeners, at)
		s.add(&soakProgram{name: fmt.Sprintf("verbs%d", i), role: "verbs", uid: uid, do: s.tn.A.Do,
			tasks: both,
			args:  func(string) []string { return []string{s.socket, b.String(), at} }})
		s.add(&soakProgram{name: fmt.Sprintf("transfer%d", i), role: "transfer", uid: uid,
			do: s.tn.A.Do, tasks: both,
			args: func(life string) []string {
				return []string{s.socket, b.String(), strings.Repeat("i", i), life}
			}})
	}
	export := netip.AddrPortFrom(a, 7174).String()
	s.add(&soakProgram{name: "peer", role: "peer", do: s.tn.B.Do,
		tasks: []string{"export", "listener0", "listener1"}, args: func(life string) []string {
			return append([]string{export, life}, listeners...)
		}})
}

// start starts a process that the soak does not kill.
func (s *soak) start(do func(func() error) error, role string, args ...string) *process {
	s.Helper()
	p, err := begin(do, s.exe, 0, s.Output(), role, args...)
	s.must(err)
	s.Cleanup(func() { p.Process.Kill(); p.Wait() })
	return p
}

// operator waits for the daemon. Only its operator socket, which opens after the control socket, shows all sessions.
func (s *soak) operator() (dev *client.Device) {
	s.Helper()
	for range 1000 {
		var err error
		if dev, err = client.Open(control.OperatorPath(s.socket)); err == nil {
			s.Cleanup(func() { dev.Close() })
			return dev
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.Fatal("xwarpd does not start")
	return nil
}

// configure writes the configuration file for reload n. Consecutive ones differ in MPA markers, in a limit, and some in
// an export.
func (s *soak) configure(n int) {
	text := fmt.Sprintf("[daemon]\nsocket = %q\nsocket_mode = \"0666\"\nconfirm = \"0s\"\n"+
		"log_level = \"warn\"\n[[interface]]\nname = \"eth0\"\n[mpa]\nmarkers = %v\n"+
		"fpdu_timeout = \"%v\"\n"+
		"[peers]\nkeepalive = \"%ds\"\n[limits]\nqps = %d\n"+
		"[[export]]\nname = \"kept\"\nlisten = \"0.0.0.0:7174\"\nsize = %d\n", s.socket, n%2 == 0,
		fpduTimeout, 10, 100+n%7, exportLen)
	if n%3 == 1 {
		text += "[[export]]\nname = \"passing\"\nlisten = \"0.0.0.0:7175\"\nsize = \"8MiB\"\n"
	}
	s.must(os.WriteFile(s.file, []byte(text), 0o600))
}

// disturb causes the events that are due n seconds after the start: another weather, a reload, a link flap or a kill.
// Then it checks that all programs make progress.
func (s *soak) disturb(n int) {
	if n%4 == 1 {
		for _, d := range []relay.Direction{relay.AToB, relay.BToA} {
			s.must(s.relay.Set(d, weather()))
		}
	}
	if n%7 == 3 {
		s.reloads++
		s.configure(s.reloads)
		s.must(s.daemon.Process.Signal(hangUp))
	}
	if n%13 == 5 {
		s.flaps++
		h := []*topo.Host{s.tn.A, s.tn.B}[rand.IntN(2)]
		l, err := h.Netlink().LinkByName(h.Link.Name)
		s.must(err)
		s.must(h.Netlink().LinkSetDown(l))
		time.Sleep(rand.N(2 * time.Second))
		s.must(h.Netlink().LinkSetUp(l))
	}
	if n%11 == 7 {
		p := s.programs[rand.IntN(len(s.programs))]
		s.kills++
		p.mu.Lock()
		p.killed = true
		p.mu.Unlock()
		p.p.Process.Kill()
		<-p.ends
		s.live(p)
	}
	for _, p := range s.programs {
		p.check(s)
	}
}

// weather returns random impairments of the path, for the next seconds.
func weather() impair.Config {
	some := func(most float64) float64 { return most * rand.Float64() * float64(rand.IntN(2)) }
	return impair.Config{Loss: some(0.02), Reorder: some(0.05), Duplicate: some(0.02),
		Corrupt: some(0.005), CorruptMode: impair.CorruptMode(rand.IntN(3)), CorruptAbove: 600,
		Resegment: rand.IntN(8) == 0, Delay: rand.N(2 * tick.Millisecond)}
}

// add starts a program that is killed from time to time.
func (s *soak) add(p *soakProgram) {
	p.progress = map[string]time.Time{}
	for _, task := range p.tasks {
		p.progress[task] = time.Now()
	}
	s.programs = append(s.programs, p)
	s.live(p)
}

// live starts the next incarnation of a program.
func (s *soak) live(p *soakProgram) {
	s.Helper()
	s.lives++
	var err error
	p.p, err = begin(p.do, s.exe, p.uid, s.Output(), p.role,
		p.args(strings.Repeat("i", s.lives))...)
	s.must(err)
	p.killed, p.ends = false, make(chan error, 1)
	go func(c *process, ends chan error) {
		for c.out.Scan() {
			s.heard(p, c.out.Text())
		}
		err := c.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.killed {
			s.Errorf("%s ended: %v", p.name, err)
		}
		ends <- err
	}(p.p, p.ends)
}

var digits = regexp.MustCompile(`[0-9]+`)

// heard handles a line of output of a program.
func (s *soak) heard(p *soakProgram, line string) {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "did":
		var task string
		var ops, byteCount int
		if n, _ := fmt.Sscan(rest, &task, &ops, &byteCount); n != 3 {
			return // the program was killed in the middle of the line
		}
		p.mu.Lock()
		p.byteCount += byteCount
		p.longest = max(p.longest, time.Since(p.progress[task]))
		p.progress[task] = time.Now()
		p.mu.Unlock()
	case "again":
		why, _, _ := strings.Cut(rest, "; queue pair") // the first cause
		why = p.name + " " + digits.ReplaceAllString(why, "#")
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.again[why]++; s.again[why] == 1 {
			s.Logf("%s: %s", p.name, rest)
		}
	default:
		s.Errorf("%s: %s", p.name, line)
	}
}

// check fails the soak if a task of p has made no progress for longestPause.
func (p *soakProgram) check(s *soak) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for task, at := range p.progress {
		if d := time.Since(at); d > longestPause {
			s.Errorf("%s: %s makes no progress for %v", p.name, task, d)
		}
	}
	if s.Failed() {
		s.stuck(p)
	}
}

// stuck logs the daemon's queue pairs and the TCP sockets of both hosts. Then it sends SIGQUIT to the stalled program,
// the far host and the daemon, so that they print their goroutine stacks and exit.
func (s *soak) stuck(p *soakProgram) {
	now, err := s.watched[0].daemon.Snapshot(s.Context())
	s.Logf("xwarpd: %v", err)
	for i := range now.QPs {
		s.Logf("%s", control.Marshal(&now.QPs[i]))
	}
	for _, h := range []*topo.Host{s.tn.A, s.tn.B} {
		h.Do(func() error {
			out, err := exec.Command("ss", "-tanpio").CombinedOutput()
			s.Logf("ss: %v\n%s", err, out)
			return nil
		})
	}
	p.killed = true
	for _, x := range []*process{p.p, s.far, s.daemon} {
		x.Process.Signal(syscall.SIGQUIT)
		time.Sleep(time.Second)
	}
}

func (s *soak) sample() {
	s.Helper()
	for _, w := range s.watched {
		if err := w.sample(); err != nil {
			s.Errorf("%s: %v", w.name, err)
		}
	}
}

// line logs the state of the soak after the given minute.
func (s *soak) line(minute int) {
	var b strings.Builder
	for _, p := range s.programs {
		p.mu.Lock()
		fmt.Fprintf(&b, " %s %d MiB,", p.name, p.byteCount>>20)
		p.mu.Unlock()
	}
	s.mu.Lock()
	again := 0
	for _, n := range s.again {
		again += n
	}
	s.mu.Unlock()
	c := s.relay.Counters(relay.AToB)
	s.Logf(
		"minute %d:%s connected again %d; %d kills, %d flaps, %d reloads; of %d frames lost %d, "+
			"duplicated %d, reordered %d, corrupted %d; %v; %v", minute, b.String(), again, s.kills,
		s.flaps, s.reloads, c.In, c.Lost, c.Duplicated, c.Reordered, c.Corrupted, s.watched[0],
		s.watched[1])
}

// close ends the soak: it kills the programs and stops the daemon, and checks progress, growth and what is left.
func (s *soak) close() {
	for _, p := range s.programs {
		p.mu.Lock()
		p.killed = true
		if p.byteCount == 0 {
			s.Errorf("%s did nothing", p.name)
		}
		s.Logf("%s: %d MiB, at most %v without progress", p.name, p.byteCount>>20, p.longest)
		p.mu.Unlock()
		p.p.Process.Kill()
		<-p.ends
	}
	for _, why := range slices.Sorted(maps.Keys(s.again)) {
		s.Logf("%5d times %s", s.again[why], why)
	}
	for _, w := range s.watched {
		if len(w.samples) > 0 {
			s.Log(w.medians())
		}
		for _, g := range w.growth() {
			s.Error(g)
		}
	}
	s.nothingLeft()
	s.must(s.daemon.Process.Signal(syscall.SIGTERM))
	if err := s.daemon.Wait(); err != nil {
		s.Errorf("xwarpd ends with %v", err)
	}
}
