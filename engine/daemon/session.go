package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/engine/budget"
	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/device"
)

// session is one program that uses the daemon. Its objects are tables of its own: a handle means nothing to others.
type session struct {
	d    *Daemon
	id   uint64
	sock syscall.Conn
	conn *control.Conn
	cred *unix.Ucred // of the program
	// The session came through the operator's socket: it has no limits, sees everything, and may do
	// everything. Whoever is uid 0 at the socket for all is a user like others: root in a container is uid 0
	// too.
	operator bool
	account  *budget.Account
	log      *slog.Logger
	ctx      context.Context // ends with the session
	cancel   context.CancelCauseFunc
	since    time.Time

	dev     *device.Device // from hello on
	program string
	bell    *control.Memory
	ringer  *control.Signal // the client rings it when the pump sleeps
	pumped  chan struct{}   // closed when the pump ended
	ringers ringers

	released chan struct{} // closed when nothing of the daemon is the session's any more

	working sync.Mutex     // held while a request is carried out; guards over
	over    bool           // no request may be carried out any more
	left    chan struct{}  // closed when the reader ended
	tasks   sync.WaitGroup // requests that wait
	ending  sync.WaitGroup // queue pairs that were destroyed and have not ended

	mu       sync.Mutex
	pending  map[uint64]context.CancelFunc
	last     control.Handle
	objects  map[control.Handle]entry
	requests int // of objects: connection requests

	viewing chan struct{} // of the snapshot that is under way to the program

	pumping sync.Mutex // held while the pump is at work; guards the rest
	bells   []poster   // by their bells; nil: free
	free    []uint32   // bells
	active  []poster   // had something in their rings
	debt    int        // what the program owes for bells that rang for nothing
}

func newSession(d *Daemon, id uint64, c *net.UnixConn, cred *unix.Ucred,
	a *budget.Account) *session {
	s := &session{
		d: d, id: id, sock: c, conn: asControl(c), cred: cred, account: a,
		since:   time.Now(),
		log:     d.log.With("session", id, "uid", cred.Uid, "pid", cred.Pid),
		pending: map[uint64]context.CancelFunc{}, objects: map[control.Handle]entry{},
		left: make(chan struct{}), released: make(chan struct{}), viewing: make(chan struct{}, 1),
		ringers: ringers{kick: make(chan struct{}, 1)},
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s
}

// fail ends the session. It does not block: workers call it.
func (s *session) fail(err error) {
	s.cancel(err)
	go s.conn.Shutdown()
}

// serve is the session's life until what it has of the daemon is given back; then it calls released, and
// waits for the reader, which may be at work for as long as the program likes, and for queue pairs that end late.
// The session counts until that is over.
func (s *session) serve(released func()) {
	defer s.contain("giving back what it has")
	go s.read()
	<-s.ctx.Done()
	s.conn.Shutdown()
	s.working.Lock() // what is carried out comes to its end
	s.over = true
	s.working.Unlock()
	switch err := context.Cause(s.ctx); {
	case errors.Is(err, io.EOF), errors.Is(err, errShutdown),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE): // it ended with replies unread
		s.log.Debug("program left", "program", s.program)
	default:
		s.log.Warn("program dropped", "program", s.program, "error", err)
	}
	s.release()
	close(s.released)
	released()
	<-s.left
	s.ending.Wait()
	for _, err := range s.releaseMemory() { // what late queue pairs used
		s.log.Error("something of a program stays", "error", err)
	}
	s.account.Release(sessionCost)
	s.d.forget(s)
}

// read takes what the program sends. It alone receives and closes the program's descriptors, which can take
// as long as the program wants (SO_LINGER, FUSE): that costs the program one of its sessions, and the daemon
// one thread.
func (s *session) read() {
	defer close(s.left)
	defer s.conn.Close()
	defer s.contain("reading requests")
	quiet := time.AfterFunc(helloWait, func() { s.fail(errors.New("no hello in time")) })
	for handle := s.hello; ; handle = s.handle {
		k, body, files, err := s.conn.Receive()
		quiet.Stop()
		if err == nil {
			err = s.carryOut(handle, k, body, files)
		}
		if err != nil {
			s.fail(err)
		}
		s.discard(files)
		if err != nil {
			return
		}
	}
}

// errHeldUp ends the session of a program whose descriptor does not close.
var errHeldUp = errors.New("the program passed a descriptor whose close blocks (a socket with " +
	"SO_LINGER, a file of a FUSE server that does not answer); " +
	"its session counts until that is over")

// discard closes what the program passed.
func (s *session) discard(files []int) {
	if len(files) == 0 {
		return
	}
	late := time.AfterFunc(leaveWait, func() {
		s.d.count.SessionsHeldUp.Add(1)
		s.fail(errHeldUp)
	})
	control.CloseAll(files)
	late.Stop()
}

// carryOut has handle take a frame, unless the session is over.
func (s *session) carryOut(handle func(body []byte, files []int) error, k control.Kind, body []byte,
	files []int) error {
	s.working.Lock()
	defer s.working.Unlock()
	defer s.contain("a request")
	if s.over {
		return errShutdown
	}
	if k != control.KindRequest {
		return fmt.Errorf("%w: a frame of kind %d from a client", control.ErrFrame, k)
	}
	return handle(body, files)
}

// handle carries a request out.
func (s *session) handle(body []byte, files []int) error {
	r, err := control.ParseRequest(body)
	if err != nil {
		return err
	}
	if f := waiting[r.Op]; f != nil {
		return s.begin(&r, f)
	}
	f := handlers[r.Op]
	if f == nil {
		return s.reply(r.ID, nil, control.Errorf(control.CodeUnknown,
			"there is no request %q in version %d of the protocol", r.Op, control.Version))
	}
	result, err := f(s, &r, files)
	return s.reply(r.ID, result, err)
}

// reply answers a request.
func (s *session) reply(id uint64, result any, err error) error {
	var files []int
	switch v := result.(type) {
	case *encoded:
		defer v.sent()
		head := fmt.Appendf(nil, `{"id":%d,"result":`, id)
		return s.conn.SendParts(control.KindReply, [][]byte{head, v.body, []byte("}")})
	case passed:
		defer control.CloseAll(v.files)
		result, files = v.result, v.files
	}
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
	s.mu.Lock()
	if s.pending[r.ID] != nil {
		s.mu.Unlock()
		return fmt.Errorf("%w: request %d is not answered yet and comes again", control.ErrFrame,
			r.ID)
	}
	if err := s.mayWait(r); err != nil {
		s.mu.Unlock()
		return s.reply(r.ID, nil, err)
	}
	ctx, cancel := context.WithCancel(s.ctx)
	s.pending[r.ID] = cancel
	s.mu.Unlock()
	s.tasks.Go(func() {
		defer s.contain(string(r.Op))
		result, err := s.wait(ctx, r, f, cancel)
		if err := s.reply(r.ID, result, err); err != nil {
			s.fail(err)
		}
	})
	return nil
}

// mayWait counts one more request that waits, unless a limit is in the way. It is called with mu held.
func (s *session) mayWait(r *control.Request) error {
	switch {
	case len(s.pending) >= control.MaxPending:
		return control.Errorf(control.CodeQuota, "%d requests wait already",
			control.MaxPending)
	case len(r.Args) > budget.MaxPendingArgs:
		return fmt.Errorf("%w: %s with %d bytes of arguments, at most %d", control.ErrFrame, r.Op,
			len(r.Args), budget.MaxPendingArgs)
	}
	return s.reserve(pendingCost)
}

// wait carries out a request that may wait.
func (s *session) wait(ctx context.Context, r *control.Request, f waiter, cancel func()) (any,
	error) {
	defer func() {
		s.mu.Lock()
		delete(s.pending, r.ID)
		s.mu.Unlock()
		s.account.Release(pendingCost)
		cancel()
	}()
	return f(s, ctx, r)
}

var waiting map[control.Op]waiter
var handlers map[control.Op]handler

func init() {
	waiting = map[control.Op]waiter{
		control.OpResolve:    waits((*session).resolve),
		control.OpConnect:    waits((*session).connect),
		control.OpAccept:     waits((*session).accept),
		control.OpGetRequest: waits((*session).getRequest),
		control.OpSnapshot:   (*session).snapshot,
		control.OpFlush:      waits((*session).flush),
		control.OpReload:     (*session).reloadConfig,
		control.OpEndCapture: waits((*session).endCapture),
	}
	handlers = map[control.Op]handler{
		control.OpAllocPD:       (*session).allocPD,
		control.OpFreePD:        destroy((*session).closePD),
		control.OpRegMR:         passing((*session).regMR),
		control.OpDeregMR:       order((*session).deregMR),
		control.OpAllocMW:       query((*session).allocMW),
		control.OpDeallocMW:     destroy((*session).closeMW),
		control.OpCreateCQ:      query((*session).createCQ),
		control.OpDestroyCQ:     destroy((*session).closeCQ),
		control.OpResizeCQ:      query((*session).resizeCQ),
		control.OpCreateSRQ:     query((*session).createSRQ),
		control.OpModifySRQ:     order((*session).modifySRQ),
		control.OpQuerySRQ:      query((*session).querySRQ),
		control.OpDestroySRQ:    destroy((*session).closeSRQ),
		control.OpCreateQP:      query((*session).createQP),
		control.OpModifyQP:      order((*session).modifyQP),
		control.OpDestroyQP:     destroy((*session).closeQP),
		control.OpDisconnect:    order((*session).disconnect),
		control.OpQueryQP:       query((*session).queryQP),
		control.OpListen:        query((*session).listen),
		control.OpCloseListener: destroy((*session).closeListener),
		control.OpReject:        order((*session).reject),
		control.OpCancel:        order((*session).cancelRequest),
		control.OpCapture:       query((*session).capture),
		control.OpConfirm:       (*session).confirm,
	}
}

// hello is the first exchange.
func (s *session) hello(body []byte, _ []int) error {
	r, err := control.ParseRequest(body)
	if err != nil || r.Op != control.OpHello {
		return errors.Join(fmt.Errorf("%w: hello must be first", control.ErrFrame), err)
	}
	var a control.HelloArgs
	if err = r.ParseArgs(&a); err == nil {
		s.afterTheDead()
		err = s.welcome(&a)
	}
	if err != nil {
		s.reply(r.ID, nil, err)
		return err
	}
	s.log.Debug("program came", "program", s.program, "device", s.dev.Name)
	passRights(s.sock, true) // for regions
	fd, err := s.ringer.Dup()
	return s.reply(r.ID, passed{control.HelloResult{Version: control.Version, Device: s.dev.Info(),
		Pid: s.d.pid, Devices: s.d.deviceInfos(), Limits: s.mostByKey()},
		[]int{s.bell.TakeFd(), fd}}, err)
}

// welcome sets up what every session has.
func (s *session) welcome(a *control.HelloArgs) (err error) {
	if a.Version != control.Version {
		remedy := "upgrade the program's side, which is older: the xwarp package where the " +
			"program runs (its container image, too)"
		if a.Version > control.Version {
			remedy = "upgrade the daemon, which is older: the xwarp package, then systemctl " +
				"restart xwarpd"
		}
		return control.Errorf(control.CodeVersion, "the program speaks version %d of the control "+
			"protocol, the daemon version %d: %s", a.Version, control.Version, remedy)
	}
	dev := s.d.device(a.Device)
	if dev == nil {
		return control.Errorf(control.CodeUnknown,
			"the daemon has no device %q; it has %v", a.Device,
			s.d.deviceNames())
	}
	const name = "xwarp-doorbell"
	if s.operator { // who must be able to look where programs cannot be served
		s.bell, err = control.NewMemory(name, control.DoorbellLen)
	} else {
		s.bell, err = s.d.mapper.NewMemory(s, name, control.DoorbellLen)
	}
	if err != nil {
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
	go func() {
		defer s.contain("telling of completions")
		s.ringers.run(s.ctx)
	}()
	return nil
}

// clip bounds a name that a program gave.
func clip(s string) string { return s[:min(len(s), 64)] }

func (s *session) limits() config.Limits { return s.d.cfg.Load().HolderLimits(s.account.Holder) }

// mostByKey returns the most that the session's user may have, by the keys of [limits]; nil for the operator.
func (s *session) mostByKey() map[string]int64 {
	if s.operator {
		return nil
	}
	most, l := map[string]int64{}, s.limits()
	for k := range budget.Limited {
		most[k.String()] = s.account.Most(&l, k)
	}
	return most
}

// reserve counts what the session's user wants more.
func (s *session) reserve(n budget.Amounts) error {
	if err := s.account.Reserve(new(s.limits()), n); err != nil {
		return quotaError(err)
	}
	return nil
}

// quotaError is an error of package budget for a program.
func quotaError(err error) error { return control.Errorf(control.CodeQuota, "%v", err) }

// mappingCost is that of each piece of shared memory.
var mappingCost = budget.Amounts{budget.Mappings: 1}

// ReserveMapping implements control.Payer.
func (s *session) ReserveMapping() error { return s.reserve(mappingCost) }

// ReleaseMapping implements control.Payer.
func (s *session) ReleaseMapping() { s.account.Release(mappingCost) }

// onlyOperator refuses what is the operator's alone.
func (s *session) onlyOperator(what string) error {
	if s.operator {
		return nil
	}
	where := "there is no socket of the operator's: daemon.admin_socket"
	if path := s.d.cfg.Load().Daemon.OperatorSocket(); path != "" {
		where = "as root, with " + path + " (daemon.admin_socket)"
	}
	return control.Errorf(control.CodePermission, "only the operator may %s: %s", what, where)
}

func (s *session) cancelRequest(a *control.CancelArgs) error {
	s.mu.Lock()
	cancel := s.pending[a.ID]
	s.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	return nil
}
