package vm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/scripts/lab/proto"
)

// Siw says how the driver is loaded. The zero value is the driver with Linux's defaults: revision 2, CRC only
// when the peer wants it; and with one fault healed, see Stock.
type Siw struct {
	Off        bool // no soft-iWARP device at all
	CRC        bool // mpa_crc_required: ask for CRC in Requests and Replies
	CRCStrict  bool // mpa_crc_strict: refuse a peer whose C bit differs from ours
	PeerToPeer bool // peer_to_peer: as initiator ask for an RTR
	Revision   int  // of the Requests it sends, 1 or 2; 0 means 2
	// leave in the fault that a responder overlooks FPDUs which arrive just after its Reply, until more
	// octets come
	Stock bool
}

// Options of one machine. The zero value of each field means what its comment says.
type Options struct {
	Network     *Network      // where to plug it in; nil = a network of its own, closed with it
	Dir         string        // what to boot from; "" = Built()
	CPUs        int           // 0 = 1
	MemoryMiB   int           // 0 = 512
	Siw         Siw           // soft-iWARP on eth0
	BootTimeout time.Duration // until commands can be run; 0 = 15 minutes: 10 s on an idle machine
}

// VM is a running machine. All methods may be called from any goroutine.
type VM struct {
	Addr4, Addr6 netip.Addr
	Number       int // on its network, from 0

	net     *Network
	ownNet  bool
	tapName string
	dir     string // temporary: the console's log
	cmd     *exec.Cmd
	exited  chan struct{} // closed when qemu has ended
	agent   *agent

	closing sync.Once
	closed  error
}

// Start boots a machine and returns when its commands can be run and its soft-iWARP device exists. ctx ends
// the wait, not the machine's life: that ends with Close, or with this process.
func Start(ctx context.Context, o Options) (v *VM, err error) {
	if o.Dir == "" {
		if o.Dir, err = Built(); err != nil {
			return nil, err
		}
	}
	if o.BootTimeout == 0 {
		o.BootTimeout = 15 * time.Minute
	}
	v = &VM{net: o.Network, exited: make(chan struct{})}
	if v.net == nil {
		if v.net, err = NewNetwork(0); err != nil {
			return nil, err
		}
		v.ownNet = true
	}
	ctx, cancel := context.WithTimeout(ctx, o.BootTimeout)
	defer cancel()
	if err := v.boot(ctx, o); err != nil {
		err = fmt.Errorf("lab machine: %w%s", err, v.consoleTail())
		v.Close()
		return nil, err
	}
	return v, nil
}

func (v *VM) boot(ctx context.Context, o Options) (err error) {
	if v.Number, err = v.net.number(); err != nil {
		return err
	}
	v.tapName = fmt.Sprintf("tap%d", v.Number)
	v.Addr4 = netip.AddrFrom4([4]byte{10, 77, 0, byte(10 + v.Number)})
	v.Addr6 = netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x77, 15: byte(0x10 + v.Number)})
	if v.dir, err = os.MkdirTemp("", "xwarp-lab-"); err != nil {
		return err
	}
	tap, err := v.net.tap(v.tapName)
	if err != nil {
		return err
	}
	defer tap.Close()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket pair for the agent: %w", err)
	}
	unix.SetNonblock(fds[0], true)
	ours, theirs := os.NewFile(uintptr(fds[0]), "agent"), os.NewFile(uintptr(fds[1]), "agent")
	defer theirs.Close()
	v.agent = newAgent(ours)
	if err := v.startQemu(o, tap, theirs); err != nil {
		return err
	}
	if err := v.agent.waitReady(ctx, v.exited); err != nil {
		return err
	}
	return v.setUp(ctx, o)
}

// startQemu runs the emulator, which inherits the tap as file 3 and the agent's socket as file 4.
func (v *VM) startQemu(o Options, tap, agent *os.File) error {
	mac := fmt.Sprintf("52:54:00:77:00:%02x", 0x10+v.Number)
	const off = "csum=off,gso=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off," +
		"host_tso4=off,host_tso6=off,host_ecn=off,host_ufo=off,mrg_rxbuf=on"
	// no_timer_check: a kernel that hardly gets processor time takes the timer for dead and stops.
	args := []string{
		"-name", "xwarp-lab-" + strconv.Itoa(v.Number),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-machine", "pc", "-accel", "tcg,thread=multi", "-cpu", "max",
		"-smp", strconv.Itoa(max(o.CPUs, 1)), "-m", strconv.Itoa(cmp.Or(o.MemoryMiB, 512)),
		"-kernel", filepath.Join(o.Dir, "vmlinuz"), "-initrd", filepath.Join(o.Dir, "initrd"),
		"-append", "console=ttyS0 quiet panic=-1 mitigations=off audit=0 random.trust_cpu=on " +
			"no_timer_check",
		"-serial", "file:" + v.consoleFile(),
		"-fsdev", "local,id=root,security_model=none,readonly=on,path=" +
			filepath.Join(o.Dir, "root"),
		"-device", "virtio-9p-pci,fsdev=root,mount_tag=root",
		"-netdev", "tap,id=net,fd=3",
		"-device", "virtio-net-pci,netdev=net,romfile=,mac=" + mac + "," + off + ",host_mtu=" +
			strconv.Itoa(v.net.MTU),
		"-device", "virtio-serial-pci",
		"-chardev", "socket,id=agent,fd=4",
		"-device", "virtserialport,chardev=agent,name=" + proto.PortName,
	}
	v.cmd = exec.Command("qemu-system-x86_64", args...)
	v.cmd.ExtraFiles = []*os.File{tap, agent}
	complaints, err := os.Create(filepath.Join(v.dir, "qemu.log"))
	if err != nil {
		return err
	}
	defer complaints.Close()
	v.cmd.Stdout, v.cmd.Stderr = complaints, complaints
	if err := v.net.hub.Start(v.cmd); err != nil {
		v.cmd = nil
		return fmt.Errorf("start qemu: %w", err)
	}
	go func() {
		v.cmd.Wait()
		close(v.exited)
	}()
	return nil
}

// setUp gives the machine its addresses and its soft-iWARP device.
func (v *VM) setUp(ctx context.Context, o Options) error {
	script := fmt.Sprintf(`set -e
ip link set lo up
modprobe virtio_net
for i in $(seq 100); do [ -e /sys/class/net/eth0 ] && break; sleep 0.05; done
echo 0 > /proc/sys/net/ipv6/conf/eth0/accept_ra
ip link set eth0 up mtu %d
ip addr add %v/%d dev eth0
ip addr add %v/%d dev eth0 nodad
# Otherwise the kernel glues small FPDUs to the one before, and tshark loses the stream.
echo 0 > /proc/sys/net/ipv4/tcp_autocorking
hostname lab%d
ulimit -l unlimited
`, v.net.MTU, v.Addr4, prefix4, v.Addr6, prefix6, v.Number)
	if !o.Siw.Off {
		script += "modprobe siw " + o.Siw.params() + "\nmodprobe rdma_ucm\nmodprobe " +
			"ib_uverbs\nrdma link add siw0 type siw netdev eth0\n"
	}
	left := 15 * time.Minute
	if d, ok := ctx.Deadline(); ok {
		left = time.Until(d)
	}
	out, code, err := v.Run(script, left)
	if err != nil {
		return fmt.Errorf("set up the machine: %w", err)
	}
	if code != 0 {
		return fmt.Errorf("set up the machine: exit code %d: %s", code, strings.TrimSpace(out))
	}
	return nil
}

func (s Siw) params() string {
	return fmt.Sprintf("mpa_crc_required=%t mpa_crc_strict=%t peer_to_peer=%t mpa_version=%d "+
		"lab_kick=%t",
		s.CRC, s.CRCStrict, s.PeerToPeer, cmp.Or(s.Revision, 2), !s.Stock)
}

// Network is what the machine is plugged into.
func (v *VM) Network() *Network { return v.net }

func (v *VM) consoleFile() string { return filepath.Join(v.dir, "console.log") }

// Console returns what the machine's kernel said.
func (v *VM) Console() string {
	b, _ := os.ReadFile(v.consoleFile())
	return string(b)
}

// consoleTail is the end of what kernel and emulator said, for an error.
func (v *VM) consoleTail() string {
	if v.dir == "" {
		return ""
	}
	complaints, _ := os.ReadFile(filepath.Join(v.dir, "qemu.log"))
	text := strings.TrimSpace(string(complaints) + v.Console())
	if text == "" {
		return " (the console is empty)"
	}
	lines := strings.Split(text, "\n")
	return "\nthe end of the console:\n" + strings.Join(lines[max(0, len(lines)-15):], "\n")
}

// Close ends the machine, and its network if that was not given to it. It returns after the emulator has
// ended. Later calls return the same.
func (v *VM) Close() error {
	v.closing.Do(func() { v.closed = v.shutDown() })
	return v.closed
}

func (v *VM) shutDown() error {
	var errs []error
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
		errs = append(errs, v.agent.close())
	}
	if v.dir != "" {
		errs = append(errs, os.RemoveAll(v.dir))
	}
	if v.ownNet {
		errs = append(errs, v.net.Close())
	}
	return errors.Join(errs...)
}
