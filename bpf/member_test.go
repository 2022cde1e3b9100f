package bpf

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"xwarp/bpf/dispatcher"
)

// TestUnknownDispatcher: a dispatcher of an unsupported version is not replaced, and the error says what the user can
// do.
func TestUnknownDispatcher(t *testing.T) {
	l := newLab(t)
	s := load(t, Options{})
	value := make([]byte, 200)
	value[0], value[1] = 236, 9
	config, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 200,
		MaxEntries: 1, Contents: []ebpf.MapKV{{Key: uint32(0), Value: value}}})
	l.must(err)
	defer config.Close()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: dispatcher.ProgramName, Type: ebpf.XDP,
		License: "GPL", Instructions: asm.Instructions{asm.LoadMapPtr(asm.R1, config.FD()),
			asm.Mov.Imm(asm.R0, xdpPass), asm.Return()}})
	l.must(err)
	defer prog.Close()
	other, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: l.ifindex(),
		Flags: link.XDPDriverMode})
	l.must(err)
	defer other.Close()
	t.Setenv("LIBXDP_BPFFS", t.TempDir()) // Join locks its directory xdp
	l.must(os.Mkdir(filepath.Join(os.Getenv("LIBXDP_BPFFS"), "xdp"), 0o700))
	id := l.attached()
	_, err = s.Attach(l.ifindex(), ModeAuto)
	if v, ok := errors.AsType[*dispatcher.VersionError](err); !ok || v.Version != 9 {
		t.Fatal(err)
	}
	wantError(t, err, nil, hostName, "version 9", "xdp-loader unload "+hostName+" --all",
		"newer xwarp")
	_, err = s.Attach(l.ifindex(), ModeGeneric)
	wantError(t, err, nil, "native mode", "xdp_mode")
	if l.attached() != id {
		t.Errorf("program %d is attached, want %d", l.attached(), id)
	}
	nic, err := netlink.LinkByIndex(l.ifindex())
	l.must(err)
	if _, err := Dispatched(nic); err == nil {
		t.Error("doctor sees no error")
	}
}
