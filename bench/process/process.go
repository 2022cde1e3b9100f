// Package process runs the two ends of a measurement as two processes, each in the network namespace of a
// host of a test topology and on a processor of its own, so that the garbage collector and the scheduler of
// one do not disturb the other.
package process

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/bench/endpoint"
	"xwarp/bench/topo"
)

// Runner runs measurements: it starts a process for each end.
type Runner struct {
	// CPUs are the processors of host A (the client) and of host B (the server).
	CPUs [2]int
	// Env is the platform of both ends.
	Env endpoint.Env
	// Daemons are the daemons of host A and of host B; nil if measurements use none.
	Daemons [2]*Daemon
	// Profile, when set, makes the ends write CPU profiles to the files Profile-client.pprof and Profile-server.pprof.
	Profile string
}

// EndCommand is the hidden subcommand that makes this executable run as an end or a load: see Main.
const EndCommand = "bench-end"

// Processors returns the processors for the two ends: the first and the last that this process may use. On a machine
// with hyperthreads these two usually belong to different cores.
func Processors() ([2]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return [2]int{}, fmt.Errorf("sched_getaffinity: %w", err)
	}
	var all []int
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			all = append(all, cpu)
		}
	}
	if len(all) < 2 {
		return [2]int{}, errors.New("two processors required, one for each end")
	}
	return [2]int{all[0], all[len(all)-1]}, nil
}

// job is the standard input of an end or a load, in JSON.
type job struct {
	Client  bool           `json:"client"`
	Place   endpoint.Place `json:"place"`
	Env     endpoint.Env   `json:"env"`
	Spec    endpoint.Spec  `json:"spec"`
	Profile string         `json:"profile,omitempty"`
	Load    *loadJob       `json:"load,omitempty"` // nil if the process is an end
}

// Run measures spec between the hosts of t, over IPv6 if ipv6 is set, otherwise over IPv4.
func (r *Runner) Run(ctx context.Context, t *topo.Net, spec endpoint.Spec,
	ipv6 bool) (*endpoint.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, spec.Warmup+spec.Duration+setUpTime)
	defer cancel()
	a, b, err := socketPair()
	if err != nil {
		return nil, err
	}
	server := r.start(ctx, t.B, t.A, b, job{Spec: spec.AtServer(),
		Place: endpoint.Place{CPU: r.CPUs[1]}}, ipv6)
	client := r.start(ctx, t.A, t.B, a, job{Spec: spec, Place: endpoint.Place{CPU: r.CPUs[0]},
		Client: true}, ipv6)
	rep, err := client.wait()
	_, serr := server.wait()
	if err = errors.Join(err, serr); err != nil {
		return nil, fmt.Errorf("%s %s_%s of %d bytes: %w", spec.Peer, spec.Verb, spec.Mode,
			spec.Size, err)
	}
	return rep, nil
}

// setUpTime is the time that a measurement may take beyond its warm-up and duration.
const setUpTime = 60 * time.Second

// socketPair returns the two ends of a control connection.
func socketPair() (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "control-a"), os.NewFile(uintptr(fds[1]), "control-b"), nil
}

// end is a running process.
type end struct {
	cmd         *exec.Cmd
	out, errOut bytes.Buffer
	err         error
}

func (r *Runner) start(ctx context.Context, h, peer *topo.Host, control *os.File, j job,
	ipv6 bool) *end {
	defer control.Close()
	e := &end{}
	j.Env = r.Env
	j.Env.Interface, j.Env.MTU = h.Link.Name, h.Link.MTU
	j.Place.Interface = h.Link.Name
	j.Place.Local, j.Place.Remote = h.Addr4.Addr(), peer.Addr4.Addr()
	if ipv6 {
		j.Place.Local, j.Place.Remote = h.Addr6.Addr(), peer.Addr6.Addr()
	}
	j.Place.LocalMAC, j.Place.RemoteMAC = h.Link.MAC.String(), peer.Link.MAC.String()
	role, daemon := "-server", r.Daemons[1]
	if j.Client {
		role, daemon = "-client", r.Daemons[0]
	}
	if daemon != nil {
		j.Place.Socket = daemon.Socket
	}
	if r.Profile != "" {
		j.Profile = r.Profile + role + ".pprof"
	}
	in, err := json.Marshal(&j)
	self, noSelf := os.Executable()
	if e.err = errors.Join(err, noSelf); e.err != nil {
		return e
	}
	e.cmd = exec.CommandContext(ctx, self, EndCommand)
	e.cmd.Stdin = bytes.NewReader(in)
	e.cmd.Stdout, e.cmd.Stderr = &e.out, &e.errOut
	e.cmd.ExtraFiles = []*os.File{control}
	e.cmd.Env = append(os.Environ(), "GOMAXPROCS="+strconv.Itoa(processors(j.Spec.Peer)))
	// With daemons the end stays in their session, where a load runs too: the scheduler may divide processors between
	// sessions first.
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: daemon == nil}
	e.err = h.StartOn(j.Place.CPU, e.cmd)
	return e
}

// processors returns GOMAXPROCS for an end, which runs on one processor. It is 3: one for the worker, which never
// yields, and two for everything else. For the peer Layered, whose goroutines do not spin, it is 1, Go's default there.
func processors(peer endpoint.Peer) int {
	if peer == endpoint.Layered {
		return 1
	}
	return 3
}

// wait waits until the end's process has ended and returns its report.
func (e *end) wait() (*endpoint.Report, error) {
	if e.err != nil {
		return nil, e.err
	}
	if err := e.cmd.Wait(); err != nil {
		output := strings.TrimSpace(e.errOut.String())
		if len(output) > maxSaid {
			output = output[:maxSaid] + "…"
		}
		return nil, fmt.Errorf("%w: %s", err, output)
	}
	rep := &endpoint.Report{}
	if err := json.Unmarshal(e.out.Bytes(), rep); err != nil {
		return nil, fmt.Errorf("an end's report: %w", err)
	}
	return rep, nil
}

// maxSaid is the maximum number of bytes that an error quotes from the output of a process that failed.
const maxSaid = 2000

// controlFD is the file descriptor of the control connection in an end's process.
const controlFD = 3

// memoryLimit is the heap size in bytes at which an end collects garbage even without Spec.Collect.
const memoryLimit = 2 << 30

// Main runs an end: it reads its job from standard input, measures, and writes its report to standard output.
// It also runs loads, which report nothing.
func Main(ctx context.Context) error {
	var j job
	if err := json.NewDecoder(os.Stdin).Decode(&j); err != nil {
		return fmt.Errorf("this command is internal to xwarp bench: %w", err)
	}
	if j.Load != nil {
		return j.Load.run(ctx)
	}
	if !j.Spec.Collect {
		endpoint.DisableGC(memoryLimit)
	}
	setAutogroup(highest) // applies to the end's session only
	f := os.NewFile(controlFD, "control")
	conn, err := net.FileConn(f)
	if err != nil {
		return fmt.Errorf("control connection: %w", err)
	}
	f.Close()
	endProfile, err := profile(j.Profile)
	if err != nil {
		return err
	}
	var rep *endpoint.Report
	if j.Client {
		rep, err = endpoint.Run(ctx, conn, j.Place, j.Env, j.Spec, 0)
	} else {
		rep, err = endpoint.Serve(ctx, conn, j.Place, j.Env, nil)
	}
	if err = errors.Join(err, endProfile()); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(rep)
}

// profile starts a CPU profile of the process. Calling end writes it to the file called name. With an empty name both
// do nothing.
func profile(name string) (end func() error, err error) {
	if name == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}
