// Package vm boots virtual machines with Linux's soft-iWARP driver (siw), and connects them to a network namespace for
// the program under test.
//
//	  peer namespace                 hub namespace                    virtual machine
//	┌─────────────────┐        ┌──────────────────────┐            ┌──────────────────┐
//	│ 10.77.0.1/24    │  veth  │        bridge        │    tap     │ 10.77.0.10+n/24  │
//	│ fd77::1/64   xw0├────────┤hub0              tapN├────────────┤eth0 fd77::10+n/64│
//	└─────────────────┘        └──────────────────────┘            │siw0 on eth0      │
//	                                                               └──────────────────┘
//
// The program under test owns xw0 and may attach a native XDP program. The bridge is in a separate namespace. Offloads
// are off, so that all packets are as on a wire. The namespaces have no names. They, their contents, the machines and
// the running captures end with the process that created them, however it ends.
//
// scripts/lab/build.sh builds the images. A test calls Need first.
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

// Siw are the parameters of the siw driver. The zero value means Linux's defaults, which are revision 2 and CRC only if
// the peer requests it, but with one bug fixed: see Stock.
type Siw struct {
	CRC        bool // mpa_crc_required: ask for CRC in Requests and Replies
	CRCStrict  bool // mpa_crc_strict: refuse a peer whose C bit differs from siw's own
	PeerToPeer bool // peer_to_peer: as initiator ask for an RTR message
	Revision   int  // MPA revision of the Requests that siw sends, 1 or 2; 0 means 2
	// Stock keeps a bug of the driver: a responder overlooks FPDUs that arrive just after its Reply, until more bytes
	// arrive.
	Stock bool
}

// Options are the settings of one machine.
type Options struct {
	Network *Network // the network that the machine joins; nil: a new one, which ends with the machine
	// NICs are the machine's cards, which stay unconfigured and without soft-iWARP. They replace Network and eth0.
	// Empty means one card, eth0, on Network.
	NICs      []NIC
	Newest    bool   // boot the newest kernel, which scripts/lab/drivers/build.sh has downloaded
	Kernel    string // boot this kernel of scripts/lab/kernels/build.sh, by its name there; empty: the lab's or newest
	NoSiw     bool   // no soft-iWARP, so that programs in the machine may use eth0
	Share     string // a directory of the host that is mounted read-only at SharePath; empty: none
	CPUs      int    // number of processors; 0: 1
	MemoryMiB int    // 0: 512
	Siw       Siw    // soft-iWARP on eth0
	// Intercept sees, changes and drops frames between the machine and Network. nil means none.
	Intercept Intercept

	dir  string // directory of the images
	arch string // the machine's processor, by Debian's name
}

// bootTimeout bounds the boot, and also the commands that set up the machine. On an idle computer they take 10 s.
const bootTimeout = 15 * time.Minute

// VM is a running machine. All methods may be called from any goroutine.
type VM struct {
	Addr4, Addr6 netip.Addr
	Number       int // number on its network, from 0

	net     *Network
	ownNet  bool
	tapName string
	wire    *wire  // set with Options.Intercept
	dir     string // temporary directory for the logs of the console and of qemu
	cmd     *exec.Cmd
	exited  chan struct{} // closed when qemu has ended
	agent   *agent
	running sync.Map // each *Process that has not ended is a key

	close func() error // shutDown, which runs only once
}

// Start boots a machine and returns when it can run commands and its soft-iWARP device exists. ctx limits only the
// boot. The machine runs until Close or until this process ends.
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
		if v.Running() { // otherwise the error of Close has the console
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

// plugIn gives the machine a number, addresses and a tap on its network. It returns the card for that tap.
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

// setUp mounts the share in the machine, and gives the machine its addresses and its soft-iWARP device.
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

// Pause stops the emulator for the time d. Meanwhile nothing runs in the machine; afterwards its clock jumps.
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

// ProcessorTime returns the processor time that the emulator has used so far. Unlike the machine's own statistics, it
// does not depend on other programs of the host.
func (v *VM) ProcessorTime() (time.Duration, error) {
	clock := int32(^v.cmd.Process.Pid<<3 | 2) // the clock ID that clock_getcpuclockid(3) returns
	var t unix.Timespec
	err := unix.ClockGettime(clock, &t)
	return time.Duration(t.Nano()), err
}

// Running reports whether the emulator still runs.
func (v *VM) Running() bool {
	select {
	case <-v.exited:
		return false
	default:
		return true
	}
}

func (v *VM) consoleFile() string { return filepath.Join(v.dir, "console.log") }

// Console returns all messages of the machine's kernel.
func (v *VM) Console() string {
	b, _ := os.ReadFile(v.consoleFile())
	return string(b)
}

// consoleLines is the number of lines of the console that an error repeats. An oops with its panic has about 80.
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

// death returns an error about an unexpected end of the machine: with the emulator's exit status, the commands that
// ran, and the end of the console. It returns nil if the emulator still runs or was never started.
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

// Close ends the machine, and also its network if Options had none. It returns when the emulator has ended. If the
// machine had already ended by itself, it returns an error with the cause. Later calls return the same result.
func (v *VM) Close() error { return v.close() }

func (v *VM) shutDown() error {
	var errs []error
	errs = append(errs, v.death())
	if v.cmd != nil {
		v.agent.halt()
		select {
		case <-v.exited:
		case <-time.After(5 * time.Second):
			// Killing loses nothing, because the file system is in memory.
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
