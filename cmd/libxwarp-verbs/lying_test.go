package libxwarpverbs_test

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/bpf/needs"
	"xwarp/engine/daemon"
	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
)

// liar relays messages between a program and a daemon. From time to time it sends something wrong to the program, in
// messages and in the memory of rings.
type liar struct {
	rnd    *rand.Rand // of the messages
	one    int        // one in this number of messages is a lie
	path   string
	daemon string

	mu   sync.Mutex
	mems []lyingMemory
	ends []interface{ Close() error }
}

// lyingMemory is memory of rings, with the offsets that the daemon writes to.
type lyingMemory struct {
	mem   []byte
	words []int
	slots bool // the daemon also fills the slots
}

func newLiar(t *testing.T, daemon string, seed uint64) *liar {
	l := &liar{daemon: daemon, one: 2 << (seed / 2 % 4), rnd: rand.New(rand.NewPCG(seed, 1)),
		path: filepath.Join(filepath.Dir(daemon), fmt.Sprintf("liar%d", seed))}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: l.path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	os.Chmod(l.path, 0o666)
	var group sync.WaitGroup
	stop := make(chan struct{})
	group.Go(func() {
		for {
			c, err := ln.AcceptUnix()
			if err != nil {
				return
			}
			l.serve(c, &group)
		}
	})
	group.Go(func() { l.scribble(seed, stop) })
	t.Cleanup(func() {
		close(stop)
		ln.Close()
		l.mu.Lock()
		for _, c := range l.ends {
			c.Close()
		}
		l.mu.Unlock()
		group.Wait()
		for _, m := range l.mems {
			unix.Munmap(m.mem)
		}
	})
	return l
}

// serve relays frames in both directions.
func (l *liar) serve(c *net.UnixConn, group *sync.WaitGroup) {
	d, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: l.daemon, Net: "unix"})
	if err != nil {
		c.Close()
		return
	}
	program, real := control.NewSocket(c, control.MaxReply), control.NewSocket(d, control.MaxReply)
	l.mu.Lock()
	l.ends = append(l.ends, program, real)
	l.mu.Unlock()
	group.Go(func() {
		defer real.Close()
		for {
			k, body, files, err := program.Receive()
			if err == nil {
				err = real.Send(k, body, files...)
			}
			control.CloseAll(files)
			if err != nil {
				return
			}
		}
	})
	group.Go(func() {
		defer program.Close()
		for {
			k, body, files, err := real.Receive()
			if err == nil {
				l.keep(body, files)
				err = l.tell(program, c, k, body, files)
			}
			control.CloseAll(files)
			if err != nil {
				return
			}
		}
	})
}

// keep maps the memory of rings that the daemon sends to the program, so that scribble can write to it.
func (l *liar) keep(body []byte, files []int) {
	if len(files) == 0 {
		return
	}
	var st unix.Stat_t
	if unix.Fstat(files[0], &st) != nil || st.Size == 0 {
		return
	}
	mem, err := unix.Mmap(files[0], 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED)
	if err != nil {
		return
	}
	m := lyingMemory{mem: mem, words: []int{64}} // head of a work queue
	if strings.Contains(string(body), `"ring"`) {
		m = lyingMemory{mem: mem, words: []int{0, 132}, slots: true} // tail and state
	}
	l.mu.Lock()
	l.mems = append(l.mems, m)
	l.mu.Unlock()
}

// scribble writes invalid values into the rings from time to time, until stop is closed.
func (l *liar) scribble(seed uint64, stop chan struct{}) {
	rnd := rand.New(rand.NewPCG(seed, 2))
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(rnd.IntN(20)) * time.Millisecond):
		}
		l.mu.Lock()
		if len(l.mems) > 0 {
			m := l.mems[rnd.IntN(len(l.mems))]
			at, v := m.words[rnd.IntN(len(m.words))], uint32(rnd.IntN(64))
			if rnd.IntN(2) == 0 {
				v = rnd.Uint32()
			}
			if m.slots && rnd.IntN(2) == 0 {
				at = 192 + 4*rnd.IntN((len(m.mem)-192)/4)
			}
			binary.NativeEndian.PutUint32(m.mem[at:], v)
		}
		l.mu.Unlock()
	}
}

// value matches a number or string of JSON that is not a key.
var value = regexp.MustCompile(`-?[0-9]+|"[^"]*"[,}]`)

// extremes are the texts that replace a value.
var extremes = []string{
	"0", "-1", "1", "3", "63", "64", "4096", "65536", "2147483647", "2147483648", "4294967295",
	"4294967296", "9223372036854775807", "18446744073709551615", "18446744073709551616", "1e9",
	"0.5", "null", `""`, "[]", "{}", `"\u0000"`, strings.Repeat("9", 400),
	`"` + strings.Repeat("x", 5000) + `"`, strings.Repeat("[", 3000),
}

// tell sends a frame to the program, sometimes modified.
func (l *liar) tell(program *control.Socket, c *net.UnixConn, k control.Kind, body []byte,
	files []int) error {
	if l.rnd.IntN(l.one) > 0 {
		return program.Send(k, body, files...)
	}
	switch l.rnd.IntN(12) {
	case 0: // a byte
		body[l.rnd.IntN(len(body))] = byte(l.rnd.Uint32())
	case 1:
		body = body[:l.rnd.IntN(len(body))]
	case 2:
		program.Send(k, body, files...)
	case 3:
		files = files[:l.rnd.IntN(len(files)+1)]
	case 4: // descriptors of something else
		other, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(other)
		for i := range files {
			unix.Dup3(other, files[i], unix.O_CLOEXEC)
		}
	case 5:
		_, err := c.Write([]byte{255, 255, 255, byte(l.rnd.Uint32()), byte(k), 0, 0, 0, '{'})
		return err
	default:
		body = value.ReplaceAllFunc(body, func(v []byte) []byte {
			switch {
			case l.rnd.IntN(6) > 0:
				return v
			case v[0] == '"' && l.rnd.IntN(2) == 0:
				return []byte(`"` + strings.Repeat("x", 5000) + `"` + string(v[len(v)-1]))
			}
			lie := extremes[l.rnd.IntN(len(extremes))]
			if v[0] == '"' {
				lie += string(v[len(v)-1])
			}
			return []byte(lie)
		})
	}
	return program.Send(k, body, files...)
}

// TestLyingDaemon sends wrong replies to programs under the sanitizers. The programs may fail, but must not access
// memory that they do not own. XWARP_LIES is the number of runs: 24 by default.
func TestLyingDaemon(t *testing.T) {
	needs.Long(t)
	run, err := os.MkdirTemp(dir, "liar")
	if err != nil {
		t.Fatal(err)
	}
	os.Chmod(run, 0o755)
	socket, path := filepath.Join(run, "s"), filepath.Join(run, "xwarp.toml")
	text := fmt.Sprintf("[daemon]\nsocket = %q\nadmin_socket = \"\"\ngrace = \"0s\"\n"+
		"[[interface]]\nname = \"lo\"\ntransport = \"kernel\"\n", socket)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(config.Source{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	d, err := daemon.New(cfg, daemon.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	seeds := uint64(24) // one or two seconds each
	if s := os.Getenv("XWARP_LIES"); s != "" {
		if seeds, err = strconv.ParseUint(s, 10, 32); err != nil {
			t.Fatal(err)
		}
	}
	var e end
	e.sanitize(t)
	path = own(t, "verbs")
	for seed := range seeds {
		name := []string{"srq", "access", "extended", "local"}[seed/4%4]
		t.Run(fmt.Sprintf("%d %s", seed, name), func(t *testing.T) {
			var list []*program
			for i, role := range []string{"s", "c"} {
				e := e
				e.socket = newLiar(t, socket, 2*seed+uint64(i)).path
				list = append(list, e.start(t, path+" "+name+" "+role+" 127.0.0.1", &e))
			}
			for _, p := range list {
				checkLied(t, p)
			}
		})
	}
}

// checkLied waits a second for the end of a program that got wrong replies, and then kills it, since it may wait for
// its daemon forever. The test fails if a sanitizer reports an error, or if another signal ends the program.
func checkLied(t *testing.T, p *program) {
	t.Helper()
	killed := false
	select {
	case <-p.done:
	case <-time.After(time.Second):
		killed = true
		p.Process.Kill()
		<-p.done
	}
	out := p.out.String()
	status, _ := p.ProcessState.Sys().(syscall.WaitStatus)
	if strings.Contains(out, "Sanitizer") || strings.Contains(out, "runtime error:") ||
		status.Signaled() && !killed {
		t.Errorf("%s: %v\n%s", p.line, p.err, out)
	}
}
