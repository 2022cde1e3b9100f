package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"xwarp/cmd/xwarp/transport"
	"xwarp/engine/daemon/client"
)

// verbsLibrary is the library that programs are preloaded with. libraryDirs are where packages and builds put it.
const verbsLibrary = "libxwarp-verbs.so"

// dlopenLibrary is beside it, for programs that open libibverbs themselves. NCCL has its name in ncclLibrary.
const (
	dlopenLibrary = "libxwarp-dlopen.so"
	ncclLibrary   = "NCCL_IBVERBS_LIB"
)

var libraryDirs = []string{"", "../lib/xwarp"}

// Styles of devices: of iWARP, whose programs connect by rdma_cm, and of RoCE, whose programs use ibv_modify_qp.
const (
	styleIWARP = "iwarp"
	styleRoCE  = "roce"
)

// Exit statuses of run when the program was not started, as env(1) and shells have them.
const (
	exitNotRunnable = 126
	exitNotFound    = 127
)

func newRun(*global) *cobra.Command {
	var device, socket, style string
	local := false
	cmd := &cobra.Command{
		Use:   "run [--local] [--device NAME] [--style roce] -- PROGRAM [ARGUMENT...]",
		Short: "Run an RDMA program, unmodified, over the daemon",
		Long: `run starts a program that uses libibverbs and librdmacm, as it comes from its package. It sees a device xwarp_NAME for
each interface of xwarpd: an RNIC for iWARP. It needs no privilege but access to the daemon's socket. Its exit status,
its signals and its terminal are the program's own.

A library is preloaded (LD_PRELOAD), so that static and setuid programs are beyond it. It is part of the package; a
build has it beside xwarp (make build). Programs that are started by other means do with

  LD_PRELOAD=/usr/lib/xwarp/libxwarp-verbs.so

and in a container with the daemon's socket mounted and its path in XWARP_SOCKET. XWARP_DEVICE leaves one device of
several. XWARP_DEBUG=1 says on stderr what the daemon refuses. xwarp doctor looks whether all is there.

With --local the program needs no xwarpd: it has a private daemon, which uses the kernel's TCP on the loopback interface
and needs no privilege. The daemon ends with the program, and leaves nothing. Only this program and those that it starts
reach the daemon, so that both ends of a connection belong into one command, such as a shell's. Use it for tests, in CI
and in containers; the device is xwarp_lo, and its speed says nothing about a network.

These programs were tried, as Debian 12 has them:

  ibverbs-utils   ibv_devices, ibv_devinfo; with --style roce: ibv_rc_pingpong, ibv_srq_pingpong
  rdmacm-utils    rping, ucmatose, rdma_client, rdma_server
  perftest        with -R or --style roce: write, read, send, atomic; bandwidth and latency
  fio             ioengine=rdma
  qperf           with -cm 1: rc_lat, rc_rdma_read_lat, rc_rdma_read_bw
  libfabric-bin   fi_pingpong -p verbs -e msg; -p "verbs;ofi_rxm" -e rdm
  tgt             a disk over iSER, and QEMU's iser:// (libiscsi)
  qemu            migrate rdma:HOST:PORT
  python3-pyverbs rdma-core's own tests, where they apply to iWARP

Programs that connect queue pairs by ibv_modify_qp and not by rdma_cm, as perftest without -R, need --style roce at both
ends. Datagrams (udaddy) are not offered. Files below /sys/class/infiniband are there for programs that look for devices,
such as ibstat; /dev/infiniband is not.`,
		Example: `  xwarp run -- ibv_devinfo -v
  xwarp run -- rping -s -v                        # on one host
  xwarp run -- rping -c -v -C 10 -a 192.0.2.1     # on another
  xwarp run -- ib_write_bw -R 192.0.2.1           # perftest by rdma_cm
  xwarp run --style roce -- ib_write_bw 192.0.2.1 # perftest by ibv_modify_qp
  xwarp run --local -- make test                  # tests of an RDMA program, without xwarpd`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("the program is missing")
			}
			if style != "" && style != styleIWARP && style != styleRoCE {
				return usagef("--style is %s or %s, not %q", styleIWARP, styleRoCE, style)
			}
			if local && socket != "" {
				return usagef("--local has a daemon of its own: leave --socket out")
			}
			library, err := findLibrary()
			if err != nil {
				return err
			}
			if local {
				if socket, err = startLocal(); err != nil {
					return err
				}
			}
			return execProgram(args, map[string]string{
				"LD_PRELOAD":          preload(library),
				client.SocketVariable: socket,
				"XWARP_DEVICE":        device,
				"XWARP_STYLE":         style,
				ncclLibrary: cmp.Or(os.Getenv(ncclLibrary),
					filepath.Join(filepath.Dir(library), dlopenLibrary)),
			})
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.StringVar(&device, "device", "", "show the program this `device` of the daemon only")
	f.StringVar(&style, "style", "", "show devices in the `style` iwarp (default) or roce")
	f.BoolVar(&local, "local", false, "start a private daemon for the program, on this host's loopback interface")
	f.StringVar(&socket, "socket", "",
		"the daemon's control `socket` "+transport.SocketDefault)
	return cmd
}

// findLibrary looks beside this executable, and where packages put libraries.
func findLibrary() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	if exe, err = filepath.EvalSymlinks(exe); err != nil {
		return "", err
	}
	var tried []string
	for _, dir := range libraryDirs {
		path := filepath.Join(filepath.Dir(exe), dir, verbsLibrary)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		tried = append(tried, path)
	}
	return "", fmt.Errorf("there is no %s (the packages have it; make build makes it where gcc, libibverbs-dev and librdmacm-dev are)",
		strings.Join(tried, " and no "))
}

// preload puts the library before the value of LD_PRELOAD.
func preload(library string) string {
	if others := os.Getenv("LD_PRELOAD"); others != "" {
		return library + ":" + others
	}
	return library
}

// noProgram is the reason that the program was not started. status is the exit status of a shell then.
type noProgram struct {
	error
	status int
}

// execProgram becomes the program, in this environment but for what set says. It returns only with an error.
func execProgram(args []string, set map[string]string) error {
	for name, value := range set {
		if value != "" {
			os.Setenv(name, value)
		}
	}
	path, err := exec.LookPath(args[0])
	if err == nil {
		err = syscall.Exec(path, args, os.Environ())
	}
	status := exitNotRunnable
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		status = exitNotFound
	}
	return noProgram{fmt.Errorf("%s: %w", args[0], err), status}
}
