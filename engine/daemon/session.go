package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"xwarp/engine/budget"
	"xwarp/engine/control"
	"xwarp/engine/daemon/config"
)

// session is one program that uses the daemon. Its objects are tables of its own: a handle means nothing to others.
type session struct {
	d       *Daemon
	id      uint64
	conn    *control.Conn
	uid     uint32
	gid     uint32
	pid     int32
	account *account
	log     *slog.Logger
	ctx     context.Context // ends with the session
	cancel  context.CancelCauseFunc
	since   time.Time

	dev     *device // from hello on
	program string
	bell    *control.Memory
	ringer  *control.Signal // the client rings it when the pump sleeps
	pumped  chan struct{}   // closed when the pump ended

	tasks sync.WaitGroup // requests that wait

	mu        sync.Mutex
	pending   map[uint64]context.CancelFunc
	last      control.Handle
	pds       map[control.Handle]*pd
	mrs       map[control.Handle]*mr
	cqs       map[control.Handle]*cq
	qps       map[control.Handle]*qp
	listeners map[control.Handle]*listener
	requests  map[control.Handle]*request
	captures  map[control.Handle]*running // made when the first one comes

	pumping sync.Mutex // held while the pump is at work; guards queues
	queues  []*qp
}

func newSession(d *Daemon, id uint64, c *control.Conn, uid uint32, pid int32, a *account) *session {
	s := &session{
		d: d, id: id, conn: c, uid: uid, pid: pid, account: a, since: time.Now(),
		log:     d.log.With("session", id, "uid", uid, "pid", pid),
		pending: map[uint64]context.CancelFunc{},
		pds:     map[control.Handle]*pd{}, mrs: map[control.Handle]*mr{}, cqs: map[control.Handle]*cq{}, qps: map[control.Handle]*qp{},
		listeners: map[control.Handle]*listener{}, requests: map[control.Handle]*request{},
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s
}

// fail ends the session. It does not block: workers call it.
func (s *session) fail(err error) {
	s.cancel(err)
	go s.conn.Close()
}

// serve is the session's life.
func (s *session) serve() {
	err := s.hello()
	for err == nil {
		err = s.next()
	}
	if cause := context.Cause(s.ctx); cause != nil {
		err = cause
	}
	s.cancel(err)
	s.conn.Close()
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, errShutdown):
		s.log.Info("program left", "program", s.program)
	default:
		s.log.Warn("program dropped", "program", s.program, "error", err)
	}
	s.release()
}

// next takes one request.
func (s *session) next() error {
	k, body, files, err := s.conn.Receive()
	if err != nil {
		return err
	}
	defer func() { control.CloseAll(files) }()
	if k != control.KindRequest {
		return fmt.Errorf("%w: a frame of kind %d from a client", control.ErrFrame, k)
	}
	r, err := control.ParseRequest(body)
	if err != nil {
		return err
	}
	if f := waiting[r.Op]; f != nil {
		return s.begin(&r, f)
	}
	result, out, err := s.do(&r, files)
	defer control.CloseAll(out)
	return s.reply(r.ID, result, out, err)
}

// reply answers a request; files stay open.
func (s *session) reply(id uint64, result any, files []int, err error) error {
	r := control.Reply{ID: id}
	if err != nil {
		r.Error = control.AsError(err)
		files = nil
	} else if result != nil {
		r.Result = control.Marshal(result)
	}
	return s.conn.Send(control.KindReply, control.Marshal(&r), files...)
}

// begin runs a request that waits for something in a goroutine of its own.
func (s *session) begin(r *control.Request, f waiter) error {
	ctx, cancel := context.WithCancel(s.ctx)
	s.mu.Lock()
	_, twice := s.pending[r.ID]
	var refused error
	if !twice {
		refused = s.mayWait(r)
	}
	if !twice && refused == nil {
		s.pending[r.ID] = cancel
	}
	s.mu.Unlock()
	switch {
	case twice:
		cancel()
		return fmt.Errorf("%w: request %d is not answered yet and comes again", control.ErrFrame, r.ID)
	case refused != nil:
		cancel()
		return s.reply(r.ID, nil, nil, refused)
	}
	s.tasks.Add(1)
	go func() {
		defer s.tasks.Done()
		result, err := f(s, ctx, r)
		s.mu.Lock()
		delete(s.pending, r.ID)
		s.mu.Unlock()
		s.account.give(pendingCost)
		cancel()
		if err := s.reply(r.ID, result, nil, err); err != nil {
			s.fail(err)
		}
	}()
	return nil
}

// mayWait counts one more request that waits, unless a limit is in the way. It is called with mu held.
func (s *session) mayWait(r *control.Request) error {
	switch {
	case len(s.pending) >= control.MaxPending:
		return &control.Error{Code: control.CodeQuota, Text: fmt.Sprintf("%d requests wait already", control.MaxPending)}
	case len(r.Args) > budget.MaxPendingArgs:
		return fmt.Errorf("%w: %s with %d octets of arguments, at most %d", control.ErrFrame, r.Op, len(r.Args), budget.MaxPendingArgs)
	}
	return s.take(pendingCost)
}

// waiter is a request that may wait, handler one that does not; the descriptors that a handler returns are closed after the reply.
type (
	waiter  func(s *session, ctx context.Context, r *control.Request) (any, error)
	handler func(s *session, r *control.Request, files []int) (result any, out []int, err error)
)

var waiting map[control.Op]waiter
var handlers map[control.Op]handler

func init() {
	waiting = map[control.Op]waiter{
		control.OpConnect: (*session).connect, control.OpAccept: (*session).accept, control.OpGetRequest: (*session).getRequest,
		control.OpSnapshot: (*session).snapshot, control.OpFlush: (*session).flush, control.OpEndCapture: (*session).endCapture,
	}
	handlers = map[control.Op]handler{
		control.OpAllocPD: (*session).allocPD, control.OpFreePD: (*session).freePD,
		control.OpRegMR: (*session).regMR, control.OpDeregMR: (*session).deregMR,
		control.OpCreateCQ: (*session).createCQ, control.OpDestroyCQ: (*session).destroyCQ,
		control.OpCreateQP: (*session).createQP, control.OpDestroyQP: (*session).destroyQP,
		control.OpDisconnect: (*session).disconnect, control.OpQueryQP: (*session).queryQP,
		control.OpListen: (*session).listen, control.OpCloseListener: (*session).closeListener,
		control.OpReject: (*session).reject, control.OpCancel: (*session).cancelRequest,
		control.OpCapture: (*session).capture, control.OpConfirm: (*session).confirm,
	}
}

func (s *session) do(r *control.Request, files []int) (any, []int, error) {
	f := handlers[r.Op]
	if f == nil {
		return nil, nil, &control.Error{Code: control.CodeUnknown, Text: fmt.Sprintf("there is no request %q in version %d of the protocol", r.Op, control.Version)}
	}
	return f(s, r, files)
}

// hello is the first exchange.
func (s *session) hello() error {
	quiet := time.AfterFunc(helloWait, func() { s.fail(errors.New("no hello in time")) })
	k, body, files, err := s.conn.Receive()
	quiet.Stop()
	control.CloseAll(files)
	if err != nil {
		return err
	}
	r, err := control.ParseRequest(body)
	if err != nil || k != control.KindRequest || r.Op != control.OpHello {
		return errors.Join(fmt.Errorf("%w: hello must be first", control.ErrFrame), err)
	}
	var a control.HelloArgs
	if err := r.ParseArgs(&a); err != nil {
		s.reply(r.ID, nil, nil, err)
		return err
	}
	if err := s.greet(&a); err != nil {
		s.reply(r.ID, nil, nil, err)
		return err
	}
	s.log.Info("program came", "program", s.program, "device", s.dev.name)
	fd, err := s.ringer.Dup()
	out := []int{s.bell.TakeFd(), fd}
	defer control.CloseAll(out)
	return s.reply(r.ID, &control.HelloResult{Version: control.Version, Device: s.dev.info(), Pid: s.d.pid}, out, err)
}

// greet sets up what every session has.
func (s *session) greet(a *control.HelloArgs) (err error) {
	if a.Version != control.Version {
		return &control.Error{Code: control.CodeVersion, Text: fmt.Sprintf(
			"the program speaks version %d of the control protocol, the daemon version %d: use the same release on both sides", a.Version, control.Version)}
	}
	dev := s.d.device(a.Device)
	if dev == nil {
		return &control.Error{Code: control.CodeUnknown, Text: fmt.Sprintf("the daemon has no device %q; it has %v", a.Device, s.d.deviceNames())}
	}
	if s.bell, err = control.NewMemory("xwarp-doorbell", control.DoorbellLen); err != nil {
		return err
	}
	if s.ringer, err = control.NewSignal(); err != nil {
		return err
	}
	s.mu.Lock()
	s.dev, s.program = dev, clip(a.Program)
	s.mu.Unlock()
	s.pumped = make(chan struct{})
	go s.pump()
	return nil
}

// clip bounds a name that a stranger gave.
func clip(s string) string { return s[:min(len(s), 64)] }

func (s *session) limits() config.Limits { return limitsFor(&s.d.cfg.Load().Config, s.uid) }

func (s *session) take(n budget.Amounts) error {
	l := s.limits()
	return s.account.take(&l, n)
}

// handle returns a new one. It is called with mu held.
func (s *session) handle() control.Handle {
	s.last++
	return s.last
}

func (s *session) cancelRequest(r *control.Request, _ []int) (any, []int, error) {
	var a control.CancelArgs
	if err := r.ParseArgs(&a); err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	cancel := s.pending[a.ID]
	s.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	return nil, nil, nil
}

// find looks a handle up in one of the tables.
func find[T any](s *session, table map[control.Handle]T, h control.Handle, what string) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := table[h]
	if !ok {
		return v, &control.Error{Code: control.CodeUnknown, Text: fmt.Sprintf("there is no %s %d", what, h)}
	}
	return v, nil
}

// parseHandle is for requests whose only argument is a handle.
func parseHandle(r *control.Request) (control.Handle, error) {
	var a control.Object
	err := r.ParseArgs(&a)
	return a.Handle, err
}
