// Package client implements package verbs on the devices of a daemon, for programs without privileges. It links neither
// netlink nor eBPF. To port a program from the embedded engine, change its constructor:
//
//	dev, err := client.Open("") // was: xdp.Open(cfg)
//
// Memory for regions must come from Device.Alloc, because the daemon must map it too.
package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"xwarp/engine/daemon/control"
	"xwarp/engine/verbs"
)

// DefaultPath is the default path of the daemon's control socket.
const DefaultPath = control.DefaultPath

// SocketVariable is the environment variable with another path of the control socket, as in containers.
const SocketVariable = "XWARP_SOCKET"

// Config selects a daemon and one of its devices.
type Config struct {
	// Path is the path of the control socket. Empty means the value of SocketVariable, or DefaultPath.
	Path string
	// Device is the name of the device's interface. Empty means the daemon's first device.
	Device string
	// Program is the name shown to operators. Empty means the name of the executable.
	Program string
	// Operator uses the operator socket that belongs to Path if this process may open it, and Path otherwise.
	Operator bool
}

// ErrDaemonGone is wrapped by errors caused by the end of the daemon, or of its connection to this program.
var ErrDaemonGone = errors.New("the daemon closed the connection (see: journalctl -u xwarpd)")

// Device is a device of a daemon. Its methods may be called from any goroutine.
type Device struct {
	conn    *control.Socket
	info    control.DeviceInfo
	session uint64
	bell    *control.DoorbellEvent // wakes the daemon
	sleep   *uint32                // in shm; 1 while the daemon sleeps
	shm     []byte                 // memory shared with the daemon

	mu     sync.Mutex
	last   uint64
	calls  map[uint64]chan answer // by request ID
	qps    map[control.Handle]*QP
	number map[uint32]*QP // by qp_num
	srqs   map[control.Handle]*SRQ
	arenas []*control.Memory // allocated by Alloc
	err    error             // set before gone is closed
	over   atomic.Bool       // err is set
	gone   chan struct{}     // closed when the connection to the daemon ended
}

type answer struct {
	result json.RawMessage
	files  []int
	err    error
}

// Open connects to the daemon with the control socket path, and uses its first device. An empty path means the value
// of SocketVariable, or DefaultPath. It fails as OpenConfig does.
func Open(path string) (*Device, error) { return OpenConfig(Config{Path: path}) }

// OpenConfig connects to a daemon. It fails with ENOENT or ECONNREFUSED if none is running, EACCES if this user may not
// use it, ENOMEM if the user has reached the limit of programs, and a *control.Error with any other reason of the
// daemon.
func OpenConfig(cfg Config) (*Device, error) {
	cfg.Path = cmp.Or(cfg.Path, os.Getenv(SocketVariable), DefaultPath)
	cfg.Program = cmp.Or(cfg.Program, filepath.Base(os.Args[0]))
	c, err := dial(&cfg)
	if err != nil {
		return nil, fmt.Errorf("xwarp daemon: %w%s", err, hint(cfg.Path, err))
	}
	d := &Device{
		conn: control.NewSocket(c, control.MaxReply), calls: map[uint64]chan answer{},
		qps: map[control.Handle]*QP{}, number: map[uint32]*QP{},
		srqs: map[control.Handle]*SRQ{}, gone: make(chan struct{}),
	}
	go d.read()
	if err := d.hello(&cfg); err != nil {
		d.Close()
		return nil, fmt.Errorf("xwarp daemon at %s: %w", cfg.Path, err)
	}
	return d, nil
}

func (d *Device) hello(cfg *Config) error {
	var r control.HelloResult
	args := control.HelloArgs{Version: control.Version, Device: cfg.Device, Program: cfg.Program}
	files, err := d.open(context.Background(), control.OpHello, args, &r, 2)
	if err != nil {
		return err
	}
	d.info, d.session = r.Device, r.Session
	if d.shm, err = mapShared(files[0], control.DoorbellLen); err != nil {
		unix.Close(files[1])
		return err
	}
	d.sleep = control.SleepWord(d.shm)
	d.bell, err = control.OpenDoorbellEvent(files[1])
	return err
}

// mapShared maps memory that the daemon created, and closes its descriptor.
func mapShared(fd, n int) ([]byte, error) {
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Size < int64(n) {
		return nil, fmt.Errorf("%w: %d bytes of shared memory, not %d: %v", control.ErrFrame,
			st.Size, n, err)
	}
	mem, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err == nil {
		err = unix.Madvise(mem, unix.MADV_POPULATE_WRITE) // the daemon allocates no pages
	}
	if err != nil {
		return nil, fmt.Errorf("mapping %d bytes of shared memory: %w", n, err)
	}
	return mem, nil
}

// exchange sends a request and waits for its reply. If ctx ends first, it asks the daemon to cancel; the daemon's reply
// decides the result.
func (d *Device) exchange(ctx context.Context, op control.Op, args, result any,
	files ...int) ([]int, error) {
	ch := make(chan answer, 1)
	d.mu.Lock()
	if d.err != nil {
		d.mu.Unlock()
		return nil, d.err
	}
	d.last++
	id := d.last
	d.calls[id] = ch
	d.mu.Unlock()
	r := control.Request{ID: id, Op: op}
	if args != nil {
		r.Args = control.Marshal(args)
	}
	d.send(&r, files...)
	var a answer
	select {
	case a = <-ch:
	case <-ctx.Done():
		d.cancel(id)
		if a = <-ch; errors.Is(a.err, context.Canceled) {
			a.err = canceled(context.Cause(ctx), a.err)
		}
	}
	if a.err == nil && result != nil {
		a.err = json.Unmarshal(a.result, result)
	}
	if a.err != nil {
		control.CloseAll(a.files)
		return nil, a.err
	}
	return a.files, nil
}

// canceledError is the error of a request that the program canceled: why it did so, and what the daemon's reply adds.
type canceledError struct {
	cause   error
	details string
	errno   syscall.Errno // of the details
}

// canceled returns the error of a request that ended because of cause. err is the daemon's reply.
func canceled(cause, err error) error {
	_, details, _ := strings.Cut(err.Error(), context.Canceled.Error())
	if details == "" {
		return cause
	}
	e := &canceledError{cause: cause, details: details}
	errors.As(err, &e.errno)
	return e
}

func (e *canceledError) Error() string { return e.cause.Error() + e.details }

// Unwrap returns the cause and the errno.
func (e *canceledError) Unwrap() []error {
	if e.errno == 0 {
		return []error{e.cause}
	}
	return []error{e.cause, e.errno}
}

// open is exchange for a reply with n descriptors.
func (d *Device) open(ctx context.Context, op control.Op, args, result any, n int) ([]int, error) {
	files, err := d.exchange(ctx, op, args, result)
	if err == nil && len(files) != n {
		control.CloseAll(files)
		return nil, fmt.Errorf("%w: %s with %d descriptors", control.ErrFrame, op, len(files))
	}
	return files, err
}

// call is exchange without descriptors in the reply.
func (d *Device) call(ctx context.Context, op control.Op, args, result any, files ...int) error {
	came, err := d.exchange(ctx, op, args, result, files...)
	control.CloseAll(came)
	return err
}

// ask is call for requests that do not wait.
func (d *Device) ask(op control.Op, args, result any) error {
	return d.call(context.Background(), op, args, result)
}

// object is an object of the daemon for which this program has a handle.
type object struct {
	dev    *Device
	handle control.Handle

	closing sync.Mutex // held during Close; guards closed
	closed  bool
}

// closeOnce calls f, unless an earlier call of closeOnce succeeded. It waits for a call by another goroutine.
func (o *object) closeOnce(f func() error) error {
	o.closing.Lock()
	defer o.closing.Unlock()
	if o.closed {
		return nil
	}
	err := f()
	o.closed = err == nil
	return err
}

// closeBy sends a request that closes the object, unless one succeeded before.
func (o *object) closeBy(op control.Op) error {
	return o.closeOnce(func() error { return o.ask(op, nil) })
}

// call sends a request about the object and waits for the reply; ask is for requests that do not block.
func (o *object) call(ctx context.Context, op control.Op, result any) error {
	return o.dev.call(ctx, op, control.Object{Handle: o.handle}, result)
}

func (o *object) ask(op control.Op, result any) error {
	return o.call(context.Background(), op, result)
}

func (o *object) of(d *Device) bool { return o.dev == d }

// own returns the client's object for an object of package verbs; nil if it does not belong to this device.
func own[T interface {
	comparable
	of(*Device) bool
}](d *Device, v any) (none T) {
	if o, _ := v.(T); o != none && o.of(d) {
		return o
	}
	return none
}

// cancel asks the daemon to cancel request id. It does not wait for the reply.
func (d *Device) cancel(id uint64) {
	d.mu.Lock()
	d.last++
	r := control.Request{ID: d.last, Op: control.OpCancel,
		Args: control.Marshal(control.CancelArgs{ID: id})}
	d.mu.Unlock()
	d.send(&r)
}

// send sends a request. If the daemon has closed the connection, the reason may still be unread: read finds it.
func (d *Device) send(r *control.Request, files ...int) {
	err := d.conn.Send(control.KindRequest, control.Marshal(r), files...)
	if err != nil && !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
		d.end(err)
	}
}

// read receives frames from the daemon.
func (d *Device) read() {
	for {
		k, body, files, err := d.conn.Receive()
		if err == nil {
			files, err = d.received(k, body, files)
		}
		control.CloseAll(files)
		if err != nil {
			d.end(err)
			return
		}
	}
}

// received handles a message. It returns those of files that no request waits for, which the caller closes.
func (d *Device) received(k control.Kind, body []byte, files []int) ([]int, error) {
	if k == control.KindEvent {
		e, err := control.ParseEvent(body)
		switch {
		case err != nil:
		case e.Event == control.EventDown:
			d.onQPDown(e.QP, e.Error)
		case e.Event == control.EventSRQLimit:
			d.onSRQLimit(e.SRQ)
		}
		return files, err
	}
	r, err := control.ParseReply(body)
	if err != nil {
		return files, err
	}
	a := answer{result: r.Result, files: files}
	if r.Error != nil {
		a.err = r.Error
	}
	if r.ID == 0 && a.err != nil {
		return files, a.err // the daemon refuses this program
	}
	d.mu.Lock()
	ch := d.calls[r.ID]
	delete(d.calls, r.ID)
	d.mu.Unlock()
	if ch == nil {
		return files, nil
	}
	ch <- a
	return nil, nil
}

// end ends the device: the daemon has exited, or this side closed.
func (d *Device) end(err error) {
	if !errors.Is(err, verbs.ErrClosed) {
		err = fmt.Errorf("%w: %w", ErrDaemonGone, err)
	}
	defer d.conn.Close() // after d.err is set, so that d.err is not the error that read gets because of Close
	d.mu.Lock()
	if d.err != nil {
		d.mu.Unlock()
		return
	}
	d.err = err
	d.over.Store(true)
	calls := d.calls
	d.calls = nil
	qps := slices.Collect(maps.Values(d.qps))
	close(d.gone)
	d.mu.Unlock()
	for _, ch := range calls {
		ch <- answer{err: err}
	}
	for _, q := range qps {
		q.markDisconnected(err)
	}
}

// failed returns why the device has become unusable; nil while it is usable.
func (d *Device) failed() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// wake makes the daemon read the rings of the queue pair or SRQ with this bell.
func (d *Device) wake(bell uint32) {
	control.RingBell(d.shm, bell)
	if control.Disarm(d.sleep) {
		d.bell.Ring()
	}
}

// Transport implements verbs.Device.
func (d *Device) Transport() verbs.Transport {
	return verbs.Transport{DeviceMode: d.info.DeviceMode, Daemon: true}
}

// Session returns the number of this connection to the daemon, as in a snapshot's SessionState.
func (d *Device) Session() uint64 { return d.session }

// Snapshot returns the part of the daemon's state that this user may see. It fails with the context's error.
func (d *Device) Snapshot(ctx context.Context) (s control.Snapshot, err error) {
	err = olderDaemon(d.call(ctx, control.OpState, nil, &s))
	return s, err
}

// Events waits for events with numbers above *after, and returns them and the number to pass to the next call. If after
// is nil, it returns at once, with the number of the latest event. It fails with the context's error.
func (d *Device) Events(ctx context.Context, after *uint64) (r control.EventsResult, err error) {
	err = olderDaemon(d.call(ctx, control.OpEvents, control.EventsArgs{After: after}, &r))
	return r, err
}

// olderDaemon adds the remedy to the error of a request that the daemon does not know.
func olderDaemon(err error) error {
	if e, ok := errors.AsType[*control.Error](err); ok && e.Code == control.CodeUnknown {
		return fmt.Errorf("xwarpd is older than this program: systemctl restart xwarpd: %w", err)
	}
	return err
}

// FlushExport writes the data that peers wrote into an exported file to disk. Only the operator may do so; others get
// EACCES, as with Confirm. It fails with the errno of the disk's error, and the context's error.
func (d *Device) FlushExport(ctx context.Context, name string) error {
	return d.call(ctx, control.OpFlush, control.FlushArgs{Export: name}, nil)
}

// Confirm confirms that the host is still reachable, so that the daemon does not roll back its start (daemon.confirm).
// Only the operator may do so.
func (d *Device) Confirm(ctx context.Context) (r control.ConfirmResult, err error) {
	err = d.call(ctx, control.OpConfirm, nil, &r)
	return r, err
}

// Reload makes the daemon reread its configuration. Only the operator may do so.
func (d *Device) Reload(ctx context.Context) (r control.ReloadResult, err error) {
	err = d.call(ctx, control.OpReload, nil, &r)
	return r, err
}

// Close releases all objects of this program and resets its connections.
func (d *Device) Close() error {
	d.end(verbs.ErrClosed)
	return nil
}

// Capture is a running capture of a device's frames. Read it to the end as a pcapng file.
type Capture struct {
	*os.File // the file, as a stream
	object
}

// Capture starts a capture. Only the operator and the members of daemon.capture_group may do so; others get EACCES. It
// fails with EINVAL for an invalid filter.
func (d *Device) Capture(ctx context.Context, args control.CaptureArgs) (*Capture, error) {
	var r control.Object
	files, err := d.open(ctx, control.OpCapture, args, &r, 1)
	if err != nil {
		return nil, err
	}
	return &Capture{os.NewFile(uintptr(files[0]), "capture"), object{dev: d, handle: r.Handle}}, nil
}

// End ends the capture, if it is still running, and returns its result. Another goroutine must read the file in the
// meantime.
func (c *Capture) End(ctx context.Context) (r control.CaptureResult, err error) {
	err = c.call(ctx, control.OpEndCapture, &r)
	return r, err
}
