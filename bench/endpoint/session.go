// Package endpoint implements the two ends of a measurement: of RDMA over the engine, and of the stacks that it is
// compared with.
//
// The client sends the Spec of the measurement to the server over a control connection. Both prepare, the client runs,
// and both report. The control connection is a kernel socket and is idle during the measurement.
package endpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"time"

	"xwarp/bpf"
)

// Schema is the version of the control protocol and of the JSON output.
const Schema = 1

// Env is the environment of an end, for later readers of the figures.
type Env struct {
	Version   string `json:"version" doc:"of this program"`
	Go        string `json:"go" doc:"toolchain"`
	Kernel    string `json:"kernel" doc:"release"`
	CPU       string `json:"cpu" doc:"model of the processor"`
	CPUs      int    `json:"cpus" doc:"processors that may be used"`
	Platform  string `json:"platform" doc:"operating system and processor"`
	Interface string `json:"interface,omitempty" doc:"that was used"`
	MTU       int    `json:"mtu,omitempty" doc:"of the interface"`
	Transport string `json:"transport,omitempty" doc:"\"xdp\" or \"kernel\""`
}

// Report is a measurement with the results and environments of both ends.
type Report struct {
	Spec      Spec    `json:"spec"`
	Client    *Result `json:"client"`
	Server    *Result `json:"server"`
	ClientEnv Env     `json:"client_env"`
	ServerEnv Env     `json:"server_env"`
	// Differences are the settings that differ between the two ends.
	Differences []string `json:"differences,omitempty"`
	// Left is the number of measurements that the client will make after this one; only a server's report has it.
	Left int `json:"-"`
}

// Main returns the main result: the receiver's for a bandwidth test of raw frames, otherwise the client's.
func (r *Report) Main() *Result {
	if r.Spec.Peer.Frames() && r.Spec.Mode == Bandwidth {
		return r.Server
	}
	return r.Client
}

// message is a message on the control connection, a JSON object. At every stage each end sends one.
type message struct {
	Schema int     `json:"schema,omitempty"`
	Env    *Env    `json:"env,omitempty"`
	Spec   *Spec   `json:"spec,omitempty"`
	Ready  *Ready  `json:"ready,omitempty"`
	Result *Result `json:"result,omitempty"`
	Left   int     `json:"left,omitempty"`
	Error  string  `json:"error,omitempty"`
}

// control is a control connection.
type control struct {
	sock net.Conn
	enc  *json.Encoder
	dec  *json.Decoder
}

// newControl returns a control over conn. Calling end closes conn, and so does the end of ctx.
func newControl(ctx context.Context, conn net.Conn) (c *control, end func()) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	return &control{conn, json.NewEncoder(conn), json.NewDecoder(io.LimitReader(conn, maxControl))},
		func() {
			stop()
			conn.Close()
		}
}

// maxControl is the largest message, in bytes, that an end reads from the other.
const maxControl = 1 << 20

func (c *control) writeMessage(m *message) error { return c.enc.Encode(m) }

func (c *control) recv() (m message, err error) {
	if err := c.dec.Decode(&m); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the other end closed the control connection")
		}
		return m, err
	}
	if m.Error != "" {
		return m, fmt.Errorf("the other end: %s", m.Error)
	}
	if m.Schema != 0 && m.Schema != Schema {
		return m, fmt.Errorf("the other end has schema %d of the control protocol, this one "+
			"%d: use the same version on both", m.Schema, Schema)
	}
	return m, nil
}

// fail tells the other end why this one cannot go on.
func (c *control) fail(err error) error {
	c.writeMessage(&message{Error: err.Error()})
	return err
}

// Serve does the server's part of one measurement over the control connection conn. want, when not nil, is the
// measurement of the server's command line: its Peer, Transmit and Ring apply to this end, and the report names how the
// client's differs in the rest.
func Serve(ctx context.Context, conn net.Conn, place Place, env Env, want *Spec) (*Report, error) {
	c, end := newControl(ctx, conn)
	defer end()
	hello, err := c.recv()
	if err != nil {
		return nil, err
	}
	if hello.Spec == nil || hello.Env == nil {
		return nil, c.fail(errors.New("the peer is not a measuring client"))
	}
	rep := &Report{Spec: *hello.Spec, ClientEnv: *hello.Env, ServerEnv: env, Left: hello.Left}
	rep.compare(want)
	own := rep.Spec.AtServer()
	spec := &own
	if want != nil {
		spec.Peer, spec.Transmit, spec.Ring = want.Peer, want.Transmit, want.Ring // each end has its own
	}
	if err := spec.Complete(); err != nil {
		return rep, c.fail(err)
	}
	e, err := newEnd(spec, &place)
	if err != nil {
		return rep, c.fail(err)
	}
	defer e.close()
	ready, err := e.prepare(true)
	if err != nil {
		return rep, c.fail(err)
	}
	rep.ServerEnv.Transport = ready.Transport
	if err := c.writeMessage(&message{Schema: Schema, Env: &rep.ServerEnv, Ready: &ready,
		Spec: want}); err != nil {
		return rep, err
	}
	begin, err := c.recv()
	if err != nil {
		return rep, err
	}
	if begin.Ready == nil {
		return rep, c.fail(errors.New("the client sent an unexpected message"))
	}
	stop := make(chan struct{})
	var last message
	var lastErr error
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		if last, lastErr = c.recv(); lastErr != nil {
			cancel(lastErr)
		}
		close(stop)
	}()
	if err := c.writeMessage(&message{}); err != nil {
		return rep, err
	}
	rep.Server, err = withProcessors(func() (*Result, error) {
		return e.runServer(ctx, *begin.Ready,
			stop)
	})
	if err != nil {
		return rep, c.fail(err)
	}
	<-stop
	if lastErr != nil {
		return rep, lastErr
	}
	rep.Client = last.Result
	return rep, c.writeMessage(&message{Result: rep.Server})
}

// Run does the client's part of one measurement over the control connection conn. left is the number of measurements
// that will follow.
func Run(ctx context.Context, conn net.Conn, place Place, env Env, spec Spec, left int) (*Report,
	error) {
	c, end := newControl(ctx, conn)
	defer end()
	if err := spec.Complete(); err != nil {
		return nil, err
	}
	rep := &Report{Spec: spec, ClientEnv: env}
	e, err := newEnd(&rep.Spec, &place)
	if err != nil {
		return nil, err
	}
	defer e.close()
	if err := c.writeMessage(&message{Schema: Schema, Env: &env, Spec: &spec,
		Left: left}); err != nil {
		return nil, err
	}
	there, err := c.recv()
	if err != nil {
		return nil, err
	}
	if there.Env == nil || there.Ready == nil {
		return nil, c.fail(errors.New("the peer is not a measuring server"))
	}
	rep.ServerEnv = *there.Env
	rep.compare(there.Spec)
	here, err := e.prepare(false)
	if err != nil {
		return nil, c.fail(err)
	}
	rep.ClientEnv.Transport = here.Transport
	if err := c.writeMessage(&message{Ready: &here}); err != nil {
		return nil, err
	}
	if _, err := c.recv(); err != nil { // the server confirms that it is ready for connections
		return nil, err
	}
	rep.Client, err = withProcessors(func() (*Result, error) {
		return e.runClient(ctx, *there.Ready)
	})
	if err != nil {
		return rep, errors.Join(err, c.pending())
	}
	if err := c.writeMessage(&message{Result: rep.Client}); err != nil {
		return rep, err
	}
	last, err := c.recv()
	rep.Server = last.Result
	return rep, err
}

// pending returns the error that the other end reported, or with which the control connection failed. It returns nil if
// neither happens within a tenth of a second.
func (c *control) pending() error {
	c.sock.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	_, err := c.recv()
	if err == nil || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return nil
	}
	c.fail(errors.New("the client failed"))
	return err
}

// compare adds the settings that differ between the ends to r.Differences. want is the measurement on the server's
// command line, nil for none.
func (r *Report) compare(want *Spec) {
	diff := func(what string, client, server any) {
		if client != server {
			r.Differences = append(r.Differences, fmt.Sprintf("%s: client %v, server %v", what,
				client, server))
		}
	}
	if r.ServerEnv.Version != "" {
		diff("version", r.ClientEnv.Version, r.ServerEnv.Version)
		diff("Go", r.ClientEnv.Go, r.ServerEnv.Go)
		diff("MTU", r.ClientEnv.MTU, r.ServerEnv.MTU)
	}
	if want == nil {
		return
	}
	s := &r.Spec
	diff("test", string(s.Verb)+"_"+string(s.Mode), string(want.Verb)+"_"+string(want.Mode))
	if want.Size != 0 { // with -a the server accepts any size
		diff("-s", s.Size, want.Size)
	}
	diff("-n", s.Iterations, want.Iterations)
	diff("-D", s.Duration, want.Duration)
	diff("-t", s.Depth, want.Depth)
	diff("-q", s.Conns, want.Conns)
	diff("-Q", s.Moderation, want.Moderation)
	diff("-b", s.Bidirectional, want.Bidirectional)
	diff("--markers", !s.NoMarkers, !want.NoMarkers)
	diff("--crc", !s.NoCRC, !want.NoCRC)
}

// LocalEnv returns an Env with the fields set that are the same for every measurement of this process.
func LocalEnv(version string) Env {
	return Env{
		Version: version, Go: runtime.Version(), Kernel: bpf.Release(), CPU: cpuModel(),
		CPUs:     runtime.NumCPU(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
}
