package vm

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"

	"xwarp/bench/topo"
	"xwarp/scripts/lab/proto"
)

// SharePath is the directory at which a machine mounts Options.Share.
const SharePath = "/share"

// noOffloads are properties of virtio-net without which it would pass packets that cannot be on a wire: larger than the
// MTU, or without a checksum.
const noOffloads = "csum=off,gso=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off," +
	"host_tso4=off,host_tso6=off,host_ecn=off,host_ufo=off,mrg_rxbuf=on"

// NIC is a network card of a machine.
type NIC struct {
	Device string // the value of qemu's -device without MAC and back end, such as "virtio-net-pci,mq=on,vectors=10"
	MAC    string
	Taps   []*os.File // one file for each queue of the tap, from OpenTap; the caller may close them after Start

	wired bool // with Options.Intercept: Taps holds the emulator's socket of the wire in front of the tap
}

// OpenTap makes a tap device in the calling thread's network namespace and returns one file for each queue. The device
// disappears when all files and all duplicates of them are closed.
func OpenTap(name string, queues int) ([]*os.File, error) {
	tap := &netlink.Tuntap{Mode: netlink.TUNTAP_MODE_TAP, Flags: netlink.TUNTAP_NO_PI,
		NonPersist: true, Queues: queues}
	tap.Name = name
	if queues > 1 {
		tap.Flags |= netlink.TUNTAP_MULTI_QUEUE
	}
	if err := netlink.LinkAdd(tap); err != nil {
		return nil, fmt.Errorf("make tap %s: %w", name, err)
	}
	return tap.Fds, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// startQemu starts the emulator. It inherits the files of the taps, from descriptor 3 on, followed by the agent's
// socket.
func (v *VM) startQemu(o Options, nics []NIC, agent *os.File) error {
	var files []*os.File
	inherit := func(f *os.File) string {
		files = append(files, f)
		return strconv.Itoa(2 + len(files))
	}
	args := v.machine(o)
	for i, n := range nics {
		kind := "tap"
		if n.wired {
			kind = "socket"
		}
		back, fds := fmt.Sprintf("%s,id=net%d", kind, i), []string{}
		for _, f := range n.Taps {
			fds = append(fds, inherit(f))
		}
		if len(fds) > 1 {
			back += ",vhost=off,fds=" + strings.Join(fds, ":")
		} else {
			back += ",fd=" + fds[0]
		}
		port := ""
		if o.Newest { // igb's virtual functions need a bus of their own
			port = fmt.Sprintf(",bus=port%d", i)
			args = append(args, "-device",
				fmt.Sprintf("pcie-root-port,id=port%d,chassis=%d,slot=%d", i, i+1, i+1))
		}
		args = append(args, "-netdev", back, "-device", fmt.Sprintf("%s,netdev=net%d,mac=%s%s",
			n.Device, i, n.MAC, port))
	}
	args = append(args, "-chardev", "socket,id=agent,fd="+inherit(agent), "-device",
		"virtserialport,chardev=agent,name="+proto.PortName)
	v.cmd = exec.Command(emulator(o), args...)
	v.cmd.ExtraFiles = files
	complaints, err := os.Create(filepath.Join(v.dir, "qemu.log"))
	if err != nil {
		return err
	}
	defer complaints.Close()
	v.cmd.Stdout, v.cmd.Stderr = complaints, complaints
	start := topo.StartHere
	if v.net != nil {
		start = v.net.hub.Start
	}
	if err := start(v.cmd); err != nil {
		v.cmd = nil
		return fmt.Errorf("start qemu: %w", err)
	}
	go func() {
		v.cmd.Wait() // its error is in v.cmd.ProcessState
		close(v.exited)
	}()
	return nil
}

// emulator returns the qemu program: one that the builds downloaded because the host's is too old, otherwise the
// host's.
func emulator(o Options) string {
	name, fetched := "qemu-system-x86_64", "qemu"+newest
	if o.arch == "arm64" {
		name, fetched = "qemu-system-aarch64", "qemu-arm64"
	} else if !o.Newest {
		return name
	}
	fetched = filepath.Join(o.dir, fetched, "usr", "bin", name)
	if _, err := os.Stat(fetched); err == nil {
		return fetched
	}
	return name
}

// board has the options of qemu that depend on the machine's processor, the console's device, and the name of the root
// directory.
type board struct{ machine, cpu, console, root string }

func (o *Options) board() board {
	switch {
	case o.arch == "arm64":
		return board{"virt,gic-version=3", "cortex-a72", "ttyAMA0", "root-arm64"}
	case o.Newest:
		return board{"q35", "max", "ttyS0", "root"}
	}
	return board{"pc", "max", "ttyS0", "root"}
}

// minMaxCPUs is the smallest value that a machine gets for maxcpus, its maximum number of processors. With maxcpus=1
// the emulator translates locked instructions to plain ones. But Linux on amd64 has no other memory barrier between its
// drivers and the emulator's devices, which run in another thread. Sometimes a driver and a device then both miss the
// other's work, and the network or the root file system stalls.
const minMaxCPUs = 2

// machine returns qemu's options for a machine, except those for its network cards and the agent.
func (v *VM) machine(o Options) []string {
	b, cpus := o.board(), max(o.CPUs, 1)
	// All messages of the kernel go to the console. An oops becomes a panic, and a panic ends the emulator.
	// no_timer_check: without it a kernel that gets little processor time assumes that the timer is dead, and stops.
	args := []string{
		"-name", "xwarp-lab-" + strconv.Itoa(v.Number),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-machine", b.machine, "-accel", "tcg,thread=multi", "-cpu", b.cpu,
		"-smp", fmt.Sprintf("%d,maxcpus=%d", cpus, max(cpus, minMaxCPUs)),
		"-m", strconv.Itoa(cmp.Or(o.MemoryMiB, 512)),
		"-kernel", filepath.Join(o.dir, "vmlinuz"+o.suffix()), "-initrd",
		filepath.Join(o.dir, "initrd"+o.suffix()),
		"-append", "console=" + b.console + " ignore_loglevel oops=panic panic=-1 " +
			"mitigations=off audit=0 random.trust_cpu=on no_timer_check",
		"-serial", "file:" + v.consoleFile(),
		"-fsdev", "local,id=root,security_model=none,readonly=on,path=" +
			filepath.Join(o.dir, b.root),
		"-device", "virtio-9p-pci,fsdev=root,mount_tag=root",
		"-device", "virtio-serial-pci",
	}
	if o.Share != "" {
		args = append(args, "-fsdev", "local,id=share,security_model=none,readonly=on,path="+
			o.Share,
			"-device", "virtio-9p-pci,fsdev=share,mount_tag=share")
	}
	return args
}
