// Package vm boots virtual machines that hold Linux's soft-iWARP driver (siw), beside a network namespace for
// the program under test.
//
//	  peer namespace                 hub namespace                    virtual machine
//	┌─────────────────┐        ┌──────────────────────┐            ┌──────────────────┐
//	│ 10.77.0.1/24    │  veth  │        bridge        │    tap     │ 10.77.0.10+n/24  │
//	│ fd77::1/64   xw0├────────┤hub0              tapN├────────────┤eth0 fd77::10+n/64│
//	└─────────────────┘        └──────────────────────┘            │siw0 on eth0      │
//	                                                               └──────────────────┘
//
// The program under test owns xw0 and may attach a native XDP program: the bridge is in a namespace of its own, and
// offloads that would show packets which cannot be on a wire are off. Both namespaces have no name. They, their
// contents, the machines and the captures vanish with the process that created them, however it ends.
//
// scripts/lab/build.sh builds the images; a test begins with Need.
package vm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Siw are the driver's parameters. The zero value is the driver with Linux's defaults: revision 2, CRC only if
// the peer requests it; and with one bug fixed, see Stock.
type Siw struct {
	CRC        bool // mpa_crc_required: ask for CRC in Requests and Replies
	CRCStrict  bool // mpa_crc_strict: refuse a peer whose C bit differs from ours
	PeerToPeer bool // peer_to_peer: as initiator ask for an RTR
	Revision   int  // of the Requests it sends, 1 or 2; 0 means 2
	// keep the bug that a responder overlooks FPDUs which arrive just after its Reply, until more
	// bytes arrive
	Stock bool
}

// Options of one machine. The comment of each field gives the meaning of its zero value.
type Options struct {
	Network *Network // where to plug it in; nil = a network of its own, closed with it
	// NICs are the machine's cards, which stay unconfigured and without soft-iWARP. They replace Network and eth0.
	// Empty means one card on Network.
	NICs      []NIC
	Newest    bool   // the newest kernel, as scripts/lab/drivers/build.sh has it
	Kernel    string // one of scripts/lab/kernels/build.sh, by its name there
	NoSiw     bool   // no soft-iWARP: eth0 is the program's
	Share     string // a directory of the host, mounted read-only at SharePath; "" = none
	CPUs      int    // 0 = 1
	MemoryMiB int    // 0 = 512
	Siw       Siw    // soft-iWARP on eth0
	// Intercept sees, changes and drops frames between the machine and Network. nil = none.
	Intercept Intercept

	dir  string // what to boot from
	arch string // the machine's processor, as Debian calls it
}

// bootTimeout bounds the boot, and the first commands: 10 s on an idle machine.
const bootTimeout = 15 * time.Minute

// VM is a running machine. All methods may be called from any goroutine.
type VM struct {
	Addr4, Addr6 netip.Addr
	Number       int // on its network, from 0

	net     *Network
	ownNet  bool
	tapName string
	wire    *wire  // with Options.Intercept
	dir     string // temporary: the console's log
	cmd     *exec.Cmd
	exited  chan struct{} // closed when qemu has ended
	agent   *agent
	running sync.Map // each *Process that has not ended is a key

	close func() error // once
}

// Start boots a machine and returns when its commands can be run and its soft-iWARP device exists. ctx ends
// the wait, not the machine's life: that ends with Close, or with this process.
func Start(ctx context.Context, o Options) (v *VM, err error) {
	if o.dir, err = built(o.suffix()); err != nil {
		return nil, err
	}
	o.arch = "amd64"
	if o.Kernel != "" {
		if _, o.arch, err = KernelOf(o.Kernel); err != nil {
			return nil, err
		}
	}
	v = &VM{net: o.Network, exited: make(chan struct{})}
	v.close = sync.OnceValue(v.shutDown)
	if v.net == nil && len(o.NICs) == 0 {
		if v.net, err = NewNetwork(0); err != nil {
			return nil, err
		}
		v.ownNet = true
	}
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	if err := v.boot(ctx, o); err != nil {
		if v.Running() { // else Close tells
			err = fmt.Errorf("%w%s", err, v.ConsoleEnd())
		}
		return nil, fmt.Errorf("lab machine: %w", errors.Join(err, v.Close()))
	}
	return v, nil
}

func (o *Options) suffix() string {
	switch {
	case o.Newest:
		return newest
	case o.Kernel != "":
		return "-" + o.Kernel
	}
	return ""
}

func (v *VM) boot(ctx context.Context, o Options) (err error) {
	if v.dir, err = os.MkdirTemp("", "xwarp-lab-"); err != nil {
		return err
	}
	nics := o.NICs
	if v.net != nil {
		nic, err := v.plugIn()
		if err != nil {
			return err
		}
		defer closeAll(nic.Taps)
		if o.Intercept != nil {
			w, card, err := newWire(nic.Taps[0], o.Intercept)
			if err != nil {
				return err
			}
			defer card.Close()
			v.wire, nic.wired, nic.Taps = w, true, []*os.File{card}
		}
		nics = []NIC{nic}
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket pair for the agent: %w", err)
	}
	unix.SetNonblock(fds[0], true)
	ours, theirs := os.NewFile(uintptr(fds[0]), "agent"), os.NewFile(uintptr(fds[1]), "agent")
	defer theirs.Close()
	v.agent = &agent{rpc.NewClient(ours), ours}
	if err := v.startQemu(o, nics, theirs); err != nil {
		return err
	}
	if err := v.agent.waitReady(ctx, v.exited); err != nil {
		return err
	}
	return v.setUp(o)
}

// plugIn gives the machine its place in the network.
func (v *VM) plugIn() (nic NIC, err error) {
	if v.Number = int(v.net.vms.Add(1)) - 1; v.Number >= maxVMs {
		return nic, fmt.Errorf("a lab network takes %d machines in its life, no more", maxVMs)
	}
	v.tapName = fmt.Sprintf("tap%d", v.Number)
	v.Addr4 = netip.AddrFrom4([4]byte{10, 77, 0, byte(10 + v.Number)})
	v.Addr6 = netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x77, 15: byte(0x10 + v.Number)})
	nic.Device = "virtio-net-pci,romfile=,host_mtu=" + strconv.Itoa(v.net.MTU) + "," + noOffloads
	nic.MAC = fmt.Sprintf("52:54:00:77:00:%02x", 0x10+v.Number)
	nic.Taps, err = v.net.tap(v.tapName)
	return nic, err
}

// setUp gives the machine its addresses and its soft-iWARP device.
func (v *VM) setUp(o Options) error {
	script := "set -e\nip link set lo up\n"
	if o.Share != "" {
		script += "mkdir " + SharePath + "\nmount -t 9p -o " +
			"ro,trans=virtio,version=9p2000.L,msize=262144,cache=loose share " + SharePath + "\n"
	}
	if v.net != nil {
		script += v.netScript()
		if !o.NoSiw {
			script += v.siwScript(o.Siw)
		}
	}
	out, code, err := v.Run(script, bootTimeout)
	if err != nil {
		return fmt.Errorf("set up the machine: %w", err)
	}
	if code != 0 {
		return fmt.Errorf("set up the machine: exit code %d: %s", code, strings.TrimSpace(out))
	}
	return nil
}

func (v *VM) netScript() string {
	return fmt.Sprintf(`modprobe virtio_net
for i in $(seq 100); do [ -e /sys/class/net/eth0 ] && break; sleep 0.05; done
echo 0 > /proc/sys/net/ipv6/conf/eth0/accept_ra
ip link set eth0 up mtu %d
ip addr add %v/%d dev eth0
ip addr add %v/%d dev eth0 nodad
`, v.net.MTU, v.Addr4, prefix4, v.Addr6, prefix6)
}

func (v *VM) siwScript(s Siw) string {
	return fmt.Sprintf(`# Otherwise the kernel glues small FPDUs to the one before, and tshark loses the stream.
echo 0 > /proc/sys/net/ipv4/tcp_autocorking
hostname lab%d
ulimit -l unlimited
modprobe siw mpa_crc_required=%t mpa_crc_strict=%t peer_to_peer=%t mpa_version=%d lab_kick=%t
modprobe rdma_ucm
modprobe ib_uverbs
rdma link add siw0 type siw netdev eth0
`, v.Number,
		s.CRC, s.CRCStrict, s.PeerToPeer, cmp.Or(s.Revision, 2), !s.Stock)
}

// Pause stops the emulator for d: nothing in the machine runs, and its clock jumps.
func (v *VM) Pause(d time.Duration) error {
	if err := v.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("stop the emulator: %w", err)
	}
	time.Sleep(d)
	if err := v.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return fmt.Errorf("let the emulator go on: %w", err)
	}
	return nil
}

// ProcessorTime returns the processor time that the emulator has used so far. Other programs of the host add nothing to
// it, as they do to the machine's own account of its processors.
func (v *VM) ProcessorTime() (time.Duration, error) {
	clock := int32(^v.cmd.Process.Pid<<3 | 2) // as clock_getcpuclockid(3) makes it
	var t unix.Timespec
	err := unix.ClockGettime(clock, &t)
	return time.Duration(t.Nano()), err
}

// Running says whether the emulator still runs.
func (v *VM) Running() bool {
	select {
	case <-v.exited:
		return false
	default:
		return true
	}
}

func (v *VM) consoleFile() string { return filepath.Join(v.dir, "console.log") }

// Console returns what the machine's kernel said.
func (v *VM) Console() string {
	b, _ := os.ReadFile(v.consoleFile())
	return string(b)
}

// consoleLines is how much of the console an error repeats: an oops with its panic has some 80 lines.
const consoleLines = 120

// ConsoleEnd returns the last messages of the emulator and of the machine's kernel, for an error.
func (v *VM) ConsoleEnd() string {
	if v.dir == "" {
		return ""
	}
	complaints, _ := os.ReadFile(filepath.Join(v.dir, "qemu.log"))
	text := strings.TrimSpace(string(complaints) + v.Console())
	if text == "" {
		return " (the console is empty)"
	}
	lines := strings.Split(text, "\n")
	return "\nthe end of the console:\n" +
		strings.Join(lines[max(0, len(lines)-consoleLines):], "\n")
}

// death returns an error with all that is known about an end which nobody asked for: the emulator's exit status, the
// commands that ran, and the console. It is nil while the emulator runs.
func (v *VM) death() error {
	if v.cmd == nil || v.Running() {
		return nil
	}
	text := "the machine has ended (qemu: " + v.cmd.ProcessState.String() + ")"
	v.running.Range(func(p, _ any) bool {
		text += fmt.Sprintf("; it ran %q, which printed %q", p.(*Process).command,
			p.(*Process).Output())
		return true
	})
	return errors.New(text + v.ConsoleEnd())
}

// Close ends the machine, and its network if that was not given to it. It returns after the emulator has
// ended. A machine that had ended before is an error, which says what it died of. Later calls return the same.
func (v *VM) Close() error { return v.close() }

func (v *VM) shutDown() error {
	var errs []error
	errs = append(errs, v.death())
	if v.cmd != nil {
		v.agent.halt()
		select {
		case <-v.exited:
		case <-time.After(5 * time.Second):
			// Its file system is in memory: nothing is lost.
			if err := v.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
				errs = append(errs, err)
			}
			<-v.exited
		}
	}
	if v.agent != nil {
		errs = append(errs, v.agent.Close())
	}
	if v.wire != nil {
		errs = append(errs, v.wire.close())
	}
	if v.dir != "" {
		errs = append(errs, os.RemoveAll(v.dir))
	}
	if v.ownNet {
		errs = append(errs, v.net.Close())
	}
	return errors.Join(errs...)
}
