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

// verbsLibrary is the library to preload. libraryDirs are its possible directories, relative to that of xwarp: in a
// build, in an installed package, and in the build of a package.
const verbsLibrary = "libxwarp-verbs.so"

// dlopenLibrary is in the directory of verbsLibrary, for programs that load libibverbs by dlopen. NCCL reads its path
// from the variable ncclLibrary.
const (
	dlopenLibrary = "libxwarp-dlopen.so"
	ncclLibrary   = "NCCL_IBVERBS_LIB"
)

var libraryDirs = []string{"", "../lib/xwarp", "package/lib"}

// Styles of devices: iWARP, for programs that connect by rdma_cm, and RoCE, for programs that use ibv_modify_qp.
const (
	styleIWARP = "iwarp"
	styleRoCE  = "roce"
)

// Exit statuses of run if the program cannot be started, as in env(1) and shells.
const (
	exitNotRunnable = 126
	exitNotFound    = 127
)

func newRun(*global) *cobra.Command {
	var device, socket, style string
	local := false
	cmd := &cobra.Command{
		Use:   "run [--local] [--device NAME] [--style roce] -- PROGRAM [ARGUMENT...]",
		Short: "Run an unmodified RDMA program over xwarpd",
		Long: `run starts an unmodified program that uses libibverbs and librdmacm. The program sees a device xwarp_NAME, an iWARP
RNIC, for each interface of xwarpd. The program needs no privilege except access to the control socket of xwarpd. run
replaces itself by the program, so exit status, signals and terminal are those of the program.

run preloads a library (LD_PRELOAD), which does not work for static and setuid programs. The package contains the
library; make build puts it beside xwarp. To start a program without xwarp run, set

  LD_PRELOAD=/usr/lib/xwarp/libxwarp-verbs.so

In a container, also mount the control socket of xwarpd and set XWARP_SOCKET to its path. XWARP_DEVICE selects one of
several devices. With XWARP_DEBUG=1 the library reports on stderr each request that xwarpd refuses. xwarp doctor
checks these requirements.

--local needs no xwarpd and no privilege. It starts a private daemon that uses kernel TCP on the loopback interface and
exits with the program. Only the program and its children can reach the private daemon, so start both ends of a
connection in one command, such as a shell script. Use --local for tests, in CI and in containers. The device is
xwarp_lo; its throughput says nothing about a network.

Tested with these programs of Debian 12:

  ibverbs-utils   ibv_devices, ibv_devinfo; with --style roce: ibv_rc_pingpong, ibv_srq_pingpong
  rdmacm-utils    rping, ucmatose, rdma_client, rdma_server
  perftest        with -R or --style roce: write, read, send, atomic; bandwidth and latency
  fio             ioengine=rdma
  qperf           with -cm 1: rc_lat, rc_rdma_read_lat, rc_rdma_read_bw
  libfabric-bin   fi_pingpong -p verbs -e msg; -p "verbs;ofi_rxm" -e rdm
  tgt             iSER target; QEMU's iser:// (libiscsi) as initiator
  qemu            migrate rdma:HOST:PORT
  python3-pyverbs the tests of rdma-core that apply to iWARP

Programs that connect queue pairs by ibv_modify_qp instead of rdma_cm, such as perftest without -R, need --style roce at
both ends. UD queue pairs (udaddy) are not supported. Programs that look for devices in /sys/class/infiniband, such as
ibstat, find them there. /dev/infiniband/xwarp_NAME is /dev/full, for programs that only check that it exists.`,
		Example: `  xwarp run -- ibv_devinfo -v
  xwarp run -- rping -s -v                        # on one host
  xwarp run -- rping -c -v -C 10 -a 192.0.2.1     # on another
  xwarp run -- ib_write_bw -R 192.0.2.1           # perftest with rdma_cm
  xwarp run --style roce -- ib_write_bw 192.0.2.1 # perftest with ibv_modify_qp
  xwarp run --local -- make test                  # without xwarpd`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("missing program")
			}
			if style != "" && style != styleIWARP && style != styleRoCE {
				return usagef("need --style %s or %s, not %q", styleIWARP, styleRoCE, style)
			}
			if local && socket != "" {
				return usagef("--local starts its own daemon: omit --socket")
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
				"LD_PRELOAD":          strings.TrimSuffix(library+":"+os.Getenv("LD_PRELOAD"), ":"),
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
	f.StringVar(&device, "device", "", "show only this `device` of xwarpd to the program")
	f.StringVar(&style, "style", "", "`style` of the devices: iwarp or roce (default: iwarp)")
	f.BoolVar(&local, "local", false, "start a private daemon on the loopback interface")
	f.StringVar(&socket, "socket", "",
		"control `socket` of xwarpd "+transport.SocketDefault)
	return cmd
}

// findLibrary returns the path of the library: beside this executable, or where packages install it.
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
	return "", fmt.Errorf("library not found: tried %s (install the package, or gcc, libibverbs-dev and "+
		"librdmacm-dev, then make build)", strings.Join(tried, " and "))
}

// noProgram is the error of a program that cannot be started. status is the exit status that a shell would return.
type noProgram struct {
	error
	status int
}

// execProgram replaces this process by the program, with the variables of set that are not empty added to the
// environment. It returns only on error.
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
