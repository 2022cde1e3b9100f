package interop

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"xwarp/engine/daemon"
	"xwarp/engine/daemon/control"
	"xwarp/scripts/lab/vm"
)

// verbsHost runs libibverbs programs on this host by xwarp run. Their daemon is on the machine's network.
type verbsHost struct {
	net    *vm.Network
	daemon *daemon.Daemon
	xwarp  string
	socket string
}

func newVerbsHost(t *testing.T, b *bench) *verbsHost {
	t.Helper()
	dir := t.TempDir()
	h := &verbsHost{net: b.net, xwarp: filepath.Join(dir, "xwarp")}
	for _, build := range []*exec.Cmd{
		exec.Command("go", "build", "-o", h.xwarp, "xwarp/cmd/xwarp"),
		exec.Command("../../../cmd/libxwarp-verbs/build.sh",
			filepath.Join(dir, "libxwarp-verbs.so")),
	} {
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", build.Args, err, out)
		}
	}
	h.daemon, h.socket = b.daemon(t, "transport = \"xdp\"\n")
	return h
}

// process is a running program on either side: in the machine or on this host.
type process interface {
	Wait(time.Duration) (code int, err error)
	Kill() error
	Output() string
}

// hostProcess is a process under xwarp run.
type hostProcess struct {
	cmd  *exec.Cmd
	done chan struct{}
	mu   sync.Mutex // guards out
	out  bytes.Buffer
}

func (h *verbsHost) spawn(line string) (*hostProcess, error) {
	args := append([]string{"run", "--socket", h.socket, "--"}, strings.Fields(line)...)
	p := &hostProcess{cmd: exec.Command(h.xwarp, args...), done: make(chan struct{})}
	p.cmd.Dir = "/"
	p.cmd.Stdout, p.cmd.Stderr = p, p
	if err := h.net.Peer.Start(p.cmd); err != nil {
		return nil, fmt.Errorf("%s: %w", line, err)
	}
	go func() {
		p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// Write implements io.Writer for what the program prints.
func (p *hostProcess) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

func (p *hostProcess) Output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

func (p *hostProcess) Wait(limit time.Duration) (int, error) {
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-time.After(limit):
		return -1, fmt.Errorf("%v did not end within %v; it printed %q", p.cmd.Args, limit,
			p.Output())
	}
}

func (p *hostProcess) Kill() error {
	p.cmd.Process.Kill()
	<-p.done
	return nil
}

// listens waits until a program of this host listens on port.
func (h *verbsHost) listens(port uint16) error {
	for stop := time.Now().Add(time.Minute); time.Now().Before(stop); time.Sleep(
		5 * time.Millisecond) {
		if slices.ContainsFunc(h.daemon.Snapshot().Listeners,
			func(l control.ListenerState) bool { return l.Addr.Port() == port }) {
			return nil
		}
	}
	return fmt.Errorf("no program listens on port %d", port)
}

// exchange is a run of one program as server and as client. PORT and PEER in their command lines are replaced.
type exchange struct {
	name, server, client   string
	wantServer, wantClient string // regular expressions that their output must match
	v6                     bool
	twice                  bool // the client connects a second time, without knowing whether the server listens again
	opcodes                []string
	link                   func(*session) error // checks the last connection on the link; may be nil
}

const programLimit = 5 * time.Minute // time limit of a program: the emulated machine is slow

func (x *exchange) run(b *bench, h *verbsHost, ours string, port uint16) (err error) {
	peer := b.vm.Addr4
	if ours == "server" {
		peer = vm.PeerAddr4
	}
	if x.v6 && ours == "server" {
		peer = vm.PeerAddr6
	} else if x.v6 {
		peer = b.vm.Addr6
	}
	say := strings.NewReplacer("PORT", fmt.Sprint(port), "PEER", peer.String())
	here := func(line string) (process, error) { return h.spawn(line) }
	there := func(line string) (process, error) { return b.vm.Spawn(line) }
	listening := func() error { return b.vm.Listening(port, time.Minute) }
	if ours == "server" {
		here, there = there, here
		listening = func() error { return h.listens(port) }
		if x.twice {
			undo, err := dropResets(b.vm)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, undo()) }()
		}
	}
	s, err := there(say.Replace(x.server))
	if err != nil {
		return err
	}
	defer s.Kill()
	if err := listening(); err != nil {
		return fmt.Errorf("%w: %s", err, s.Output())
	}
	c, err := here(say.Replace(x.client))
	if err != nil {
		return err
	}
	defer c.Kill()
	if err := printed("client", c, x.wantClient); err != nil {
		return fmt.Errorf("%w; the server: %s", err, s.Output())
	}
	return printed("server", s, x.wantServer)
}

// dropResets drops the RSTs that the machine receives, so that its TCP retries a refused connect after a second. The
// client of perftest connects a second time right after the last message of its server. The server listens again only
// when that message is acknowledged, 40 ms later. siw gives up if it gets a RST; xwarp run retries for a second.
func dropResets(m *vm.VM) (undo func() error, err error) {
	run := func(command string) error {
		out, code, err := m.Run(command, time.Minute)
		if err == nil && code != 0 {
			err = fmt.Errorf("%s: %s", command, out)
		}
		return err
	}
	return func() error { return run("tc qdisc del dev eth0 ingress") },
		run(
			"tc qdisc add dev eth0 ingress && tc filter add dev eth0 parent ffff: protocol ip u32 " +
				"match u8 0x14 0xff at 33 action drop") // flags RST and ACK after an IPv4 header without options
}

// printed waits until a program has ended, and checks its exit code and that its output matches want.
func printed(side string, p process, want string) error {
	code, err := p.Wait(programLimit)
	if err = pingEnded(code, err)(p.Output()); err == nil &&
		!regexp.MustCompile(want).MatchString(p.Output()) {
		err = fmt.Errorf("it printed no %s:\n%s", want, p.Output())
	}
	if err != nil {
		return fmt.Errorf("the %s: %w", side, err)
	}
	return nil
}

// rpings returns a run of rping, which checks each byte at both ends. pinged checks the bytes on the link too.
func rpings(size, count int, v6 bool) exchange {
	line := fmt.Sprintf("rping -V -v -p PORT -S %d -C %d", size, count)
	x := exchange{
		name:   fmt.Sprintf("rping of %d bytes, IPv6 %v", size, v6),
		server: line + " -s", client: line + " -c -a PEER", v6: v6,
		opcodes: []string{"Write", "Read Request", "Read Response", "Send"},
		link:    func(s *session) error { return s.pinged(count, size) },
	}
	if v6 {
		x.server += " -a ::0"
	}
	x.wantClient = fmt.Sprintf("rdma-ping-%d: ", count-1)
	x.wantServer = x.wantClient
	return x
}

// sends returns a run of ib_send_bw with the given flags. It must print its table of results.
func sends(flags string) exchange {
	line := "ib_send_bw -R -F -p PORT " + flags
	return exchange{
		name: "ib_send_bw " + flags, server: line, client: line + " PEER",
		wantClient: `#bytes +#iterations.*\n *\d+ +\d+ +\d`,
		wantServer: `#bytes +#iterations`,
		opcodes:    []string{"Send", "Write"},
		twice:      true,
	}
}

// fios returns a run of fio for each of the three verbs of its rdma engine. With Sends the receiver verifies each
// block. With Writes and Reads it cannot, because only the initiator sees the operations.
func fios() (list []exchange) {
	const job = "fio --name=x --ioengine=rdma --port=PORT --size=1m --bs=64k "
	const toPeer = job + "--hostname=PEER --rw=write --iodepth=4 --verb="
	for _, x := range []exchange{
		{name: "write", opcodes: []string{"Send", "Write"}},
		{name: "read", opcodes: []string{"Send", "Read Request", "Read Response"}},
		{name: "send", opcodes: []string{"Send"}},
	} {
		x.server, x.client = job+"--rw=read --iodepth=16", toPeer+x.name
		if x.name == "send" {
			x.server += " --verb=recv --verify=crc32c --verify_fatal=1"
			x.client += " --verify=crc32c --do_verify=0"
		}
		x.name = "fio " + x.name
		x.wantServer, x.wantClient = "err= 0", `WRITE: bw=.*io=1024KiB`
		list = append(list, x)
	}
	return list
}

// TestPrograms runs unmodified programs as client and as server: one side on this host by xwarp run and xwarpd, the
// other in the machine over Linux's soft-iWARP.
func TestPrograms(t *testing.T) {
	b := need(t, vm.Siw{})
	h := newVerbsHost(t, b)
	all := []exchange{
		rpings(64, 100, false), rpings(4096, 100, true), rpings(60000, 50, false),
		sends("-s 4096 -n 500"), sends("-n 100"),
	}
	for _, x := range append(all, fios()...) {
		for _, ours := range []string{"client", "server"} {
			t.Run(x.name+", our "+ours, func(t *testing.T) {
				port := port()
				opcodes := x.opcodes
				if ours == "client" && !slices.Contains(opcodes, "Read Request") { // xwarp's RTR message is a Read
					opcodes = append([]string{"Read Request", "Read Response"}, opcodes...)
				}
				list := b.captured(t, port, func() error {
					return x.run(b, h, ours, port)
				}, opcodes...)
				if x.link == nil {
					return
				}
				if err := x.link(list[len(list)-1]); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
