package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"xwarp/cmd/program"
	"xwarp/engine/daemon/client"
	"xwarp/engine/sockets"
	"xwarp/engine/transfer"
	"xwarp/engine/verbs"
	"xwarp/engine/xdp"
)

// roleEnv is the environment variable that makes the test binary run another role. The arguments of the role are in
// argsEnv. A number is passed as an argument of that length.
const (
	roleEnv = "XWARP_TEST_ROLE"
	argsEnv = "XWARP_TEST_ARGS"
)

var roles = map[string]func(args []string) error{"xwarpd": xwarpdRole, "far": farRole,
	"verbs": verbsRole, "transfer": transferRole, "peer": peerRole}

func TestMain(m *testing.M) {
	role := roles[os.Getenv(roleEnv)]
	if role == nil {
		os.Exit(m.Run())
	}
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(3) // the test ended
	}()
	if err := role(strings.Split(os.Getenv(argsEnv), "\n")); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// process is another process of the soak.
type process struct {
	*exec.Cmd
	out *bufio.Scanner
}

// begin starts a role in the network namespace in which do calls its argument, as the user uid.
func begin(do func(func() error) error, exe string, uid uint32, log io.Writer, role string,
	args ...string) (*process, error) {
	p := &process{Cmd: exec.Command(exe)}
	p.Env = append(os.Environ(), roleEnv+"="+role, argsEnv+"="+strings.Join(args, "\n"))
	p.SysProcAttr = &syscall.SysProcAttr{}
	if uid != 0 {
		p.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: uid}
	}
	p.Stderr = log
	if _, err := p.StdinPipe(); err != nil { // the pipe closes when the test ends; then the process exits
		return nil, err
	}
	out, err := p.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewScanner(out)
	return p, do(p.Start) // a child starts in the namespace of the thread that forks
}

// publicExe returns the path of a copy of the test binary that every user can execute.
func publicExe(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(publicDir(t), "test")
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// publicDir returns a new directory that every user can enter.
func publicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "xwarpd-soak")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o755)
	return dir
}

// goState is the state that only the Go process itself can read.
type goState struct {
	Heap       uint64 // bytes that were alive at the last collection
	Goroutines int
}

// tellState serves the goState of this process on a Unix socket.
func tellState(path string) error {
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
			metrics.Read(live)
			json.NewEncoder(c).Encode(goState{live[0].Value.Uint64(), runtime.NumGoroutine()})
			c.Close()
		}
	}()
	return nil
}

// xwarpdRole runs xwarpd. Its arguments are the socket of tellState and the command line.
func xwarpdRole(args []string) error {
	if err := tellState(args[0]); err != nil {
		return err
	}
	os.Args = append([]string{"xwarpd"}, args[1:]...)
	program.Main(run)
	return nil
}

// Ports of the far host, over its engine (XDP) and over its kernel: for verbs, and the first of several for transfers.
const (
	farXDP, farKernel   = 7201, 7202
	copyXDP, copyKernel = 7300, 7400
)

// soakOptions are the options of devices that do not belong to the daemon.
var soakOptions = sockets.Options{FPDUTimeout: fpduTimeout}

// farRole runs the far host. Its arguments are the socket of tellState, its address, and the number of transfer
// clients. It serves over the engine and over kernel TCP.
func farRole(args []string) error {
	if err := tellState(args[0]); err != nil {
		return err
	}
	addr := netip.MustParseAddr(args[1])
	x, err := xdp.Open(xdp.Config{Options: soakOptions, Interface: "eth0"})
	if err != nil {
		return err
	}
	k, err := sockets.Open(sockets.Config{Options: soakOptions})
	if err != nil {
		return err
	}
	for _, side := range []struct {
		dev         verbs.Device
		verbs, copy uint16
	}{{x, farXDP, copyXDP}, {k, farKernel, copyKernel}} {
		l, err := side.dev.Listen(netip.AddrPortFrom(addr, side.verbs), verbs.ListenConfig{})
		if err != nil {
			return err
		}
		go answer(side.dev, l)
		for i := range uint16(len(args[2])) {
			dir, err := os.MkdirTemp(filepath.Dir(args[0]), "files")
			if err != nil {
				return err
			}
			tree, err := transfer.OpenTree(transfer.TreeConfig{Path: dir, Size: 4 * maxStored})
			if err != nil {
				return err
			}
			s, err := transfer.Listen(transfer.ServerConfig{Device: side.dev, Tree: tree,
				Idle: 30 * time.Second}, netip.AddrPortFrom(addr, side.copy+i))
			if err != nil {
				return err
			}
			go s.Serve(context.Background())
		}
	}
	fmt.Println("ready")
	select {}
}

// tasks counts the operations of the concurrent tasks of a program. tell prints the counts once a second.
type tasks struct {
	mu  sync.Mutex
	did map[string][2]int // operations and bytes
}

// add counts an operation of a task.
func (k *tasks) add(task string, byteCount int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.did == nil {
		k.did = map[string][2]int{}
	}
	d := k.did[task]
	k.did[task] = [2]int{d[0] + 1, d[1] + byteCount}
}

// run repeats round forever. Each round has its own connection; run prints its error for the test. It exits the program
// after an error that ends the soak (isWrong).
func (k *tasks) run(task string, round func(did func(byteCount int)) error) {
	for {
		err := round(func(byteCount int) { k.add(task, byteCount); time.Sleep(breath) })
		if err == nil {
			continue
		}
		fmt.Printf("again %s %q\n", task, err.Error())
		if isWrong(err) {
			os.Exit(2)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (k *tasks) tell() {
	for {
		time.Sleep(time.Second)
		k.mu.Lock()
		for task, d := range k.did {
			fmt.Println("did", task, d[0], d[1])
		}
		k.did = map[string][2]int{}
		k.mu.Unlock()
	}
}

// breath is the pause between two operations: the soak tests duration, not load.
const breath = 50 * time.Millisecond

// verbsRole is a user's program with two connections to the far host, over different transports there, and a listener.
// Its arguments are the control socket, the far address, and its own address and port.
func verbsRole(args []string) error {
	dev, err := client.Open(args[0])
	if err != nil {
		return err
	}
	l, err := dev.Listen(netip.MustParseAddrPort(args[2]), verbs.ListenConfig{})
	if err != nil {
		return err
	}
	go answer(dev, l)
	far := netip.MustParseAddr(args[1])
	var k tasks
	for task, port := range map[string]uint16{"xdp": farXDP, "kernel": farKernel} {
		go k.run(task, func(did func(int)) error {
			return exchange(dev, netip.AddrPortFrom(far, port), did)
		})
	}
	k.tell()
	return nil
}

// peerRole is a program on the far host that uses only kernel TCP. Its arguments are the addresses of the daemon's
// export and programs, and the index of its piece of the export.
func peerRole(args []string) error {
	dev, err := sockets.Open(sockets.Config{Options: soakOptions})
	if err != nil {
		return err
	}
	var k tasks
	piece := len(args[1])
	go k.run("export", func(did func(int)) error {
		return writeExport(dev, netip.MustParseAddrPort(args[0]), piece, did)
	})
	for i, at := range args[2:] {
		go k.run(fmt.Sprintf("listener%d", i), func(did func(int)) error {
			return exchange(dev, netip.MustParseAddrPort(at), did)
		})
	}
	k.tell()
	return nil
}

// transferRole is a user's program that stores and fetches files. Its arguments are the control socket, the far
// address, the index of its directory on the far host, and the number of its incarnation.
func transferRole(args []string) error {
	dev, err := client.Open(args[0])
	if err != nil {
		return err
	}
	far, dir, life := netip.MustParseAddr(args[1]), uint16(len(args[2])), len(args[3])
	var k tasks
	for task, port := range map[string]uint16{"xdp": copyXDP, "kernel": copyKernel} {
		c := &copier{dev: dev, at: netip.AddrPortFrom(far, port+dir), life: uint64(life)}
		go k.run(task, c.round)
	}
	k.tell()
	return nil
}
