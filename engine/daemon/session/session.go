package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/engine/budget"
	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/device"
	"xwarp/engine/guard"
	"xwarp/engine/internal/core"
)

// Daemon is the part of the daemon that its sessions use. Its methods may be called from any goroutine.
type Daemon interface {
	// Config returns the configuration, which a reload replaces.
	Config() *config.Loaded
	Devices() []*device.Device
	Sessions() []*Session
	// Snapshot returns the objects of one holder, or of all if nil.
	Snapshot(only *budget.Holder) control.Snapshot
	Confirm() (control.ConfirmResult, error)
	ReloadConfig() (control.ReloadResult, error)
	FlushExport(name string) error
	// ReportDefect counts and logs a panic. It must be called before the stack of the panic is unwound.
	ReportDefect(log *slog.Logger, doing string, v any)
	// Forget removes a session that has ended.
	Forget(*Session)
}

// Config is the configuration of a session.
type Config struct {
	ID      uint64
	Conn    *net.UnixConn
	Cred    *unix.Ucred     // of the program
	Account *budget.Account // in which Cost is reserved
	Mapper  *control.Mapper // maps the memory of programs
	Count   *Counters
	// Rendezvous connects queue pairs of ibv_modify_qp. All sessions of a daemon share it.
	Rendezvous *RendezvousService
	Log        *slog.Logger
	Events     *Events
}

// Counters count events of all sessions of a daemon.
type Counters struct {
	SessionsHeldUp atomic.Uint64 // sessions that ended because closing a descriptor blocked
	DoorbellRests  atomic.Uint64 // pauses of pumps because programs rang without work
}

// Session is one connection of a program to the control socket, with its objects. Handles are numbers in its own table,
// valid in this session only.
//
// executing is taken before pumpMu and mu, which are never held together. engine/daemon/README.md has the whole order.
type Session struct {
	d          Daemon
	id         uint64
	sock       syscall.Conn
	conn       *control.Socket
	cred       *unix.Ucred // of the program
	mapper     *control.Mapper
	count      *Counters
	rendezvous *RendezvousService
	// account is the operator's if the program connected to the operator socket. The operator has no limits, sees
	// everything, and may do everything. On the common socket UID 0 is an ordinary user, because root in a container
	// has UID 0 too.
	account   *budget.Account
	log       *slog.Logger
	eventList *Events
	ctx       context.Context // done when the session ends
	cancel    context.CancelCauseFunc
	since     time.Time

	// Set by hello, except that New sets signaller, and renewDevice may replace dev.
	dev       *device.Device
	program   string
	bellPage  *control.Memory        // the page with the doorbells
	ringer    *control.DoorbellEvent // wakes the pump; written by the client
	pumpDone  chan struct{}          // closed when the pump has ended
	signaller signaller

	readerDone        chan struct{}  // closed when receiveLoop has ended
	resourcesReleased chan struct{}  // closed when release has returned
	snapshotTurn      chan struct{}  // has one slot, for the snapshot being sent
	eventsTurn        chan struct{}  // has one slot, for the program's request for events
	waiting           sync.WaitGroup // goroutines of pending requests, and of queue pairs that ibv_modify_qp connects
	closingQPs        sync.WaitGroup // queue pairs destroyed but not yet closed

	executing sync.Mutex // held while a request is executed; a blocking one is only started under it
	// guarded by executing
	closing  bool                      // no more requests may be executed
	gidPorts map[rendezvousAddr]func() // ports that queryGIDs opened; release closes them

	mu sync.Mutex
	// guarded by mu
	pending      map[uint64]context.CancelFunc // pending requests, by ID
	last         control.Handle                // the handle given last
	objects      map[control.Handle]entry
	connRequests int  // connection requests among objects
	stopping     bool // Shutdown was called: no more listeners and connections

	pumpMu sync.Mutex // held while posted work requests are moved
	// guarded by pumpMu
	posters   []poster // by bell; nil if the bell is free
	freeBells []uint32
	active    []poster // the posters to scan: their bell rang, or they had entries at the last scan
	pumpDebt  int      // weighted count of doorbells, less that of posted batches, see maxPumpDebt
}

// ErrShutdown ends the sessions of a stopping daemon.
var ErrShutdown error = control.Errorf(control.CodeClosed, "the daemon is stopping")

// New returns a session. Run serves it.
func New(d Daemon, c Config) *Session {
	s := &Session{
		d: d, id: c.ID, sock: c.Conn, conn: control.NewSocket(c.Conn, control.MaxRequest),
		cred: c.Cred, mapper: c.Mapper, rendezvous: c.Rendezvous, count: c.Count,
		account: c.Account, since: time.Now(),
		log:     c.Log.With("session", c.ID, "uid", c.Cred.Uid, "pid", c.Cred.Pid),
		pending: map[uint64]context.CancelFunc{}, objects: map[control.Handle]entry{},
		readerDone: make(chan struct{}), resourcesReleased: make(chan struct{}),
		snapshotTurn: make(chan struct{}, 1), eventsTurn: make(chan struct{}, 1),
		eventList: c.Events, gidPorts: map[rendezvousAddr]func(){},
	}
	s.signaller.init()
	if c.Account.Tenant != "" {
		s.log = s.log.With("tenant", c.Account.Tenant)
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s
}

// ID returns the number of the session.
func (s *Session) ID() uint64 { return s.id }

// Holder returns the holder of the account that the session is charged to.
func (s *Session) Holder() budget.Holder { return s.account.Holder }

// Fail ends the session. It does not block, because workers call it.
func (s *Session) Fail(err error) {
	s.cancel(err)
	go s.conn.Shutdown()
}

// Run serves the session until it ends, and releases its objects. Then it calls released, and waits for receiveLoop,
// which a program can delay as long as it likes, and for queue pairs that close late. The session is charged to its
// user until Run returns.
func (s *Session) Run(released func()) {
	defer guard.Recover(s.onDefect("releasing its objects"))
	go s.receiveLoop()
	<-s.ctx.Done()
	s.conn.Shutdown()
	s.executing.Lock() // wait for the request being executed
	s.closing = true
	s.executing.Unlock()
	switch err := context.Cause(s.ctx); {
	case errors.Is(err, io.EOF), errors.Is(err, ErrShutdown),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE): // the program left with unread replies
		s.log.Debug("program disconnected", "program", s.program)
	default:
		s.log.Warn("closed the session of a program", "program", s.program, "error", err)
	}
	s.release()
	s.record(control.ChangeDel, nil)
	close(s.resourcesReleased)
	released()
	<-s.readerDone
	s.closingQPs.Wait()
	for _, err := range s.releaseMemory() { // of queue pairs that closed late
		s.log.Error("cannot release all objects of a program", "error", err)
	}
	s.account.Release(Cost)
	s.d.Forget(s)
}

// receiveLoop receives the program's requests and executes them. Only it receives and closes the program's descriptors.
// A close can block as long as the program wants (SO_LINGER, FUSE), which costs the program one of its sessions, and
// the daemon one thread.
func (s *Session) receiveLoop() {
	defer close(s.readerDone)
	defer s.conn.Close()
	defer guard.Recover(s.onDefect("reading requests"))
	noHello := time.AfterFunc(helloTimeout, func() { s.Fail(errors.New("no hello in time")) })
	for handle := s.hello; ; handle = s.dispatch {
		k, body, files, err := s.conn.Receive()
		noHello.Stop()
		if err == nil {
			err = s.execute(handle, k, body, files)
		}
		if err != nil {
			s.Fail(err)
		}
		s.closeFiles(files)
		if err != nil {
			return
		}
	}
}

// errCloseBlocked ends the session of a program that passed a descriptor whose close blocks.
var errCloseBlocked = errors.New("the program passed a descriptor whose close blocks (a socket " +
	"with SO_LINGER, a file of a hung FUSE server); " +
	"its session counts until the close returns")

// closeFiles closes descriptors that the program passed. If that takes too long, the session ends.
func (s *Session) closeFiles(files []int) {
	if len(files) == 0 {
		return
	}
	late := time.AfterFunc(closeWait, func() {
		s.count.SessionsHeldUp.Add(1)
		s.Fail(errCloseBlocked)
	})
	control.CloseAll(files)
	late.Stop()
}

// execute calls handle with a frame. It fails if the session is closing, or if the frame is not a request.
func (s *Session) execute(handle func(body []byte, files []int) error, k control.Kind, body []byte,
	files []int) error {
	s.executing.Lock()
	defer s.executing.Unlock()
	defer guard.Recover(s.onDefect("a request"))
	if s.closing {
		return ErrShutdown
	}
	if k != control.KindRequest {
		return fmt.Errorf("%w: frame of kind %d from a client", control.ErrFrame, k)
	}
	return handle(body, files)
}

// dispatch executes a request and answers it. A request that may block is only started, and answered by its goroutine.
func (s *Session) dispatch(body []byte, files []int) error {
	r, err := control.ParseRequest(body)
	if err != nil {
		return err
	}
	if f := blockingHandlers[r.Op]; f != nil {
		return s.startBlocking(&r, f)
	}
	f := handlers[r.Op]
	if f == nil {
		return s.reply(r.ID, nil, control.Errorf(control.CodeUnknown,
			"unknown request %q in protocol version %d: install the same version of this program "+
				"and of xwarpd, and restart xwarpd", r.Op, control.Version))
	}
	result, err := func() (any, error) {
		defer s.enterTurn(awaitsOthers[r.Op])()
		return f(s, &r, files)
	}()
	return s.reply(r.ID, result, err) // outside the turn: a program may leave replies unread
}

// enterTurn waits for the user's turn to execute requests, and returns a function that ends the turn. waits says that
// the request may have to wait for something else, such as its peer: its turn ends after turnTime at the latest.
func (s *Session) enterTurn(waits bool) (leave func()) {
	s.account.Enter(budget.RequestTurn)
	once := sync.OnceFunc(func() { s.account.Leave(budget.RequestTurn) })
	if !waits {
		return once
	}
	late := time.AfterFunc(turnTime, once)
	return func() {
		late.Stop()
		once()
	}
}

// awaitsOthers has the requests whose handlers wait for a peer, for queue pairs that close, or for pages of memory.
var awaitsOthers = map[control.Op]bool{
	control.OpDestroyQP: true, control.OpSetState: true, control.OpModifyQP: true,
	control.OpDisconnect: true, control.OpDeregMR: true, control.OpCloseListener: true,
	control.OpReject: true, control.OpRegMR: true,
}

// reply answers a request with a result or an error.
func (s *Session) reply(id uint64, result any, err error) error {
	var files []int
	switch v := result.(type) {
	case *encoded:
		defer v.sent()
		head := fmt.Appendf(nil, `{"id":%d,"result":`, id)
		return s.conn.SendParts(control.KindReply, [][]byte{head, v.body, []byte("}")})
	case withFiles:
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

// startBlocking runs a request that may block on its own goroutine. If it may not run because of a limit, startBlocking
// answers it with the error.
func (s *Session) startBlocking(r *control.Request, f blockingHandler) error {
	s.mu.Lock()
	if s.pending[r.ID] != nil {
		s.mu.Unlock()
		return fmt.Errorf("%w: request ID %d is already in use", control.ErrFrame,
			r.ID)
	}
	if err := s.reserveWaiter(r); err != nil {
		s.mu.Unlock()
		return s.reply(r.ID, nil, err)
	}
	ctx, cancel := context.WithCancel(s.ctx)
	s.pending[r.ID] = cancel
	s.mu.Unlock()
	s.waiting.Go(func() {
		defer guard.Recover(s.onDefect(string(r.Op)))
		result, err := s.runBlocking(ctx, r, f, cancel)
		if err := s.reply(r.ID, result, err); err != nil {
			s.Fail(err)
		}
	})
	return nil
}

// reserveWaiter charges a pending request, or fails at a limit. It must be called with mu held.
func (s *Session) reserveWaiter(r *control.Request) error {
	switch {
	case len(s.pending) >= control.MaxPending:
		return control.Errorf(control.CodeQuota, "as many requests as allowed, %d, are already "+
			"waiting", control.MaxPending)
	case len(r.Args) > budget.MaxPendingArgs:
		return fmt.Errorf("%w: %s: %d bytes of arguments, at most %d", control.ErrFrame, r.Op,
			len(r.Args), budget.MaxPendingArgs)
	}
	return s.reserve(pendingCost)
}

// runBlocking executes a request that may block, and undoes reserveWaiter.
func (s *Session) runBlocking(ctx context.Context, r *control.Request, f blockingHandler,
	cancel func()) (any, error) {
	defer func() {
		s.mu.Lock()
		delete(s.pending, r.ID)
		s.mu.Unlock()
		s.account.Release(pendingCost)
		cancel()
	}()
	return f(s, ctx, r)
}

var (
	blockingHandlers map[control.Op]blockingHandler // requests that may block
	handlers         map[control.Op]handler         // all others, executed in order of arrival
)

func init() {
	blockingHandlers = map[control.Op]blockingHandler{
		control.OpResolve:    mayBlock((*Session).resolve),
		control.OpConnect:    mayBlock((*Session).connect),
		control.OpAccept:     mayBlock((*Session).accept),
		control.OpGetRequest: mayBlock((*Session).acceptRequest),
		control.OpState:      (*Session).snapshot,
		control.OpEvents:     mayBlock((*Session).events),
		control.OpNetlink:    mayBlock((*Session).netlink),
		control.OpFlush:      mayBlock((*Session).flush),
		control.OpReload:     (*Session).reloadConfig,
		control.OpEndCapture: mayBlock((*Session).endCapture),
	}
	handlers = map[control.Op]handler{
		control.OpAllocPD:       (*Session).allocPD,
		control.OpFreePD:        removes((*Session).closePD),
		control.OpRegMR:         takesFiles((*Session).regMR),
		control.OpDeregMR:       uses((*Session).deregMR),
		control.OpAllocMW:       returnsResult((*Session).allocMW),
		control.OpDeallocMW:     removes((*Session).closeMW),
		control.OpCreateCQ:      returnsResult((*Session).createCQ),
		control.OpDestroyCQ:     removes((*Session).closeCQ),
		control.OpResizeCQ:      returnsResult((*Session).resizeCQ),
		control.OpCreateSRQ:     returnsResult((*Session).createSRQ),
		control.OpModifySRQ:     returnsNothing((*Session).modifySRQ),
		control.OpQuerySRQ:      uses((*Session).querySRQ),
		control.OpDestroySRQ:    removes((*Session).closeSRQ),
		control.OpCreateQP:      returnsResult((*Session).createQP),
		control.OpModifyQP:      returnsNothing((*Session).modifyQP),
		control.OpSetState:      returnsNothing((*Session).setState),
		control.OpQueryGIDs:     (*Session).queryGIDs,
		control.OpDestroyQP:     removes((*Session).closeQP),
		control.OpDisconnect:    uses((*Session).disconnect),
		control.OpQueryQP:       uses((*Session).queryQP),
		control.OpListen:        returnsResult((*Session).listen),
		control.OpCloseListener: removes((*Session).closeListener),
		control.OpReject:        returnsNothing((*Session).reject),
		control.OpCancel:        returnsNothing((*Session).cancelRequest),
		control.OpCapture:       returnsResult((*Session).startCapture),
		control.OpConfirm:       (*Session).confirmReachable,
	}
}

// hello handles the first request, which must be OpHello.
func (s *Session) hello(body []byte, _ []int) error {
	r, err := control.ParseRequest(body)
	if err != nil || r.Op != control.OpHello {
		return errors.Join(fmt.Errorf("%w: hello must be first", control.ErrFrame), err)
	}
	var a control.HelloArgs
	if err = r.ParseArgs(&a); err == nil {
		s.waitForDeadSessions()
		err = s.setUp(&a)
	}
	if err != nil {
		s.reply(r.ID, nil, err)
		return err
	}
	s.log.Debug("program connected", "program", s.program, "device", s.dev.Name)
	control.PassRights(s.sock, true) // registering a region passes a descriptor
	fd, err := s.ringer.Dup()
	return s.reply(r.ID, withFiles{control.HelloResult{Version: control.Version,
		Device: s.dev.Describe(), Pid: os.Getpid(), Session: s.id,
		Devices: deviceInfos(s.d.Devices()), Limits: s.limitsByKey(),
	}, []int{s.bellPage.TakeFd(), fd}}, err)
}

// setUp checks the arguments of the hello, creates the doorbell and starts the goroutines of the session.
func (s *Session) setUp(a *control.HelloArgs) (err error) {
	defer s.enterTurn(false)()
	if a.Version != control.Version {
		remedy := "upgrade the older side: the xwarp package where the program runs " +
			"(including its container image)"
		if a.Version > control.Version {
			remedy = "upgrade the older side: the daemon's xwarp package, then systemctl " +
				"restart xwarpd"
		}
		return control.Errorf(control.CodeVersion, "the program speaks control protocol "+
			"version %d, the daemon version %d: %s", a.Version, control.Version, remedy)
	}
	dev := device.Find(s.d.Devices(), a.Device)
	if dev == nil {
		return control.Errorf(control.CodeUnknown,
			"no device %q; the daemon has %v", a.Device,
			device.Names(s.d.Devices()))
	}
	const name = "xwarp-doorbell"
	if s.account.Operator { // without the mapper, so that the operator is served even if programs cannot be
		s.bellPage, err = control.NewMemory(name, control.DoorbellLen)
	} else {
		s.bellPage, err = s.mapper.NewMemory(s, name, control.DoorbellLen)
	}
	if err != nil {
		return err
	}
	if s.ringer, err = control.NewDoorbellEvent(); err != nil {
		return err
	}
	s.mu.Lock()
	s.dev, s.program = dev, clip(a.Program)
	s.record(control.ChangeNew, nil)
	s.mu.Unlock()
	s.pumpDone = make(chan struct{})
	go s.pump()
	go func() {
		defer guard.Recover(s.onDefect("signalling completions"))
		s.signaller.signalLoop(s.ctx, s.account)
	}()
	return nil
}

func deviceInfos(devices []*device.Device) (list []control.DeviceInfo) {
	for _, v := range devices {
		list = append(list, v.Describe())
	}
	return list
}

// clip limits the length of a name given by a program.
func clip(s string) string { return s[:min(len(s), 64)] }

func (s *Session) limits() config.Limits { return s.d.Config().HolderLimits(s.account.Holder) }

// limitsByKey returns the limits of the session's user by the keys of [limits], or nil for the operator.
func (s *Session) limitsByKey() map[string]int64 {
	if s.account.Operator {
		return nil
	}
	most, l := map[string]int64{}, s.limits()
	for k := range budget.Limited {
		most[k.String()] = s.account.Most(&l, k)
	}
	return most
}

// reserve reserves n in the account of the session's user.
func (s *Session) reserve(n budget.Amounts) error {
	return control.QuotaError(s.account.Reserve(new(s.limits()), n))
}

// mappingCost is the cost of one mapping of shared memory.
var mappingCost = budget.Amounts{budget.Mappings: 1}

// ReserveMapping implements control.Payer. It charges one mapping to the session's user, and fails at the limit.
func (s *Session) ReserveMapping() error { return s.reserve(mappingCost) }

// ReleaseMapping implements control.Payer. It undoes one ReserveMapping.
func (s *Session) ReleaseMapping() { s.account.Release(mappingCost) }

// onlyOperator returns an error unless the session is the operator's.
func (s *Session) onlyOperator(what string) error {
	if s.account.Operator {
		return nil
	}
	where := "no operator socket is configured (daemon.admin_socket)"
	if path := s.d.Config().Daemon.OperatorSocket(); path != "" {
		where = "as root, with " + path + " (daemon.admin_socket)"
	}
	return control.Errorf(control.CodePermission, "only the operator may %s: %s", what, where)
}

func (s *Session) cancelRequest(a *control.CancelArgs) error {
	s.mu.Lock()
	cancel := s.pending[a.ID]
	s.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	return nil
}

// Shutdown sends the program EventStopping, unless its hello has not come yet. It disconnects the queue pairs of the
// session, gracefully until ctx is done, and ends the session. The program can neither listen nor connect meanwhile.
func (s *Session) Shutdown(ctx context.Context) {
	s.mu.Lock()
	s.stopping = true
	greeted := s.dev != nil
	s.mu.Unlock()
	if greeted {
		s.sendEvent(&control.Event{Event: control.EventStopping})
	}
	for _, l := range objectsOf[*listener](s) {
		l.eng.Close()
	}
	var ending []*core.QP
	for _, q := range objectsOf[*qp](s) {
		if q.connected.Load() {
			ending = append(ending, q.eng)
		}
	}
	device.Disconnect(ctx, ending)
	s.Fail(ErrShutdown)
}
