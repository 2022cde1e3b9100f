package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"xwarp/engine/guard"
	"xwarp/engine/verbs"
)

// ServerConfig configures a server. A MaxClients or Idle of zero means the default in limits.go.
type ServerConfig struct {
	Device     verbs.Device
	Tree       *Tree // the directory
	MaxClients int
	Idle       time.Duration
	DSCP       int    // as verbs.ListenConfig.DSCP
	Stats      *Stats // counters to add to; nil: its own
	// Event, if set, is called after every transfer and for failures, possibly by several goroutines at once.
	Event func(Event)
}

// Event is the end of one transfer.
type Event struct {
	// Op is "store" or "fetch", or "stat", "list", "mkdir" or "setattr" if that failed. It is empty if Err is about the
	// connection.
	Op     string
	File   string // path in the directory
	Remote netip.AddrPort
	Bytes  int64
	Took   time.Duration
	Err    error // nil on success
}

// Server lets clients copy files to and from a directory.
type Server struct {
	cfg     ServerConfig
	lns     []verbs.Listener
	hashing *semaphore.Weighted // acquired to hash a piece: one client at a time
	clients sync.WaitGroup

	mu         sync.Mutex
	maxClients int                             // maximum number of clients
	qps        map[*verbs.ConnRequest]verbs.QP // of connected clients, by their request; nil: not yet
}

// Listen creates a server that accepts clients at each address, all with one port, once Serve runs. It skips further
// addresses of a family that the host lacks.
func Listen(cfg ServerConfig, at ...netip.AddrPort) (*Server, error) {
	if cfg.MaxClients <= 0 {
		cfg.MaxClients = DefaultMaxClients
	}
	if cfg.Idle <= 0 {
		cfg.Idle = DefaultIdle
	}
	cfg.Stats = cmp.Or(cfg.Stats, &Stats{})
	if cfg.Event == nil {
		cfg.Event = func(Event) {}
	}
	lns, err := verbs.ListenAll(cfg.Device, at, verbs.ListenConfig{Backlog: cfg.MaxClients,
		DSCP: cfg.DSCP})
	if err != nil {
		return nil, err
	}
	return &Server{
		cfg: cfg, lns: lns, hashing: semaphore.NewWeighted(1), maxClients: cfg.MaxClients,
		qps: map[*verbs.ConnRequest]verbs.QP{},
	}, nil
}

// Addr returns the listening address, the first of several.
func (s *Server) Addr() netip.AddrPort { return s.lns[0].Addr() }

// Addrs returns all listening addresses.
func (s *Server) Addrs() (list []netip.AddrPort) {
	for _, l := range s.lns {
		list = append(list, l.Addr())
	}
	return list
}

// Serve accepts clients until ctx is done, notifies the connected ones, and returns when all have left. It closes the
// listeners.
func (s *Server) Serve(ctx context.Context) error {
	defer s.clients.Wait()
	group, ctx := errgroup.WithContext(ctx)
	for _, l := range s.lns {
		group.Go(func() error { return s.acceptLoop(ctx, l) })
	}
	return group.Wait()
}

// acceptLoop accepts clients of one listener.
func (s *Server) acceptLoop(ctx context.Context, l verbs.Listener) error {
	defer l.Close()
	for {
		req, err := l.Accept(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if !s.admit(req) {
			const why = "too many clients"
			err = fmt.Errorf("rejected: %w", errors.Join(errors.New(why), s.reject(req, why)))
			s.cfg.Event(Event{Remote: req.Remote, Err: err})
			continue
		}
		s.clients.Go(func() {
			defer s.dismiss(req)
			defer guard.Recover(func(v any) { s.onDefect(req.Remote, v) })
			if err := s.client(ctx, req); err != nil {
				s.cfg.Event(Event{Remote: req.Remote, Err: err})
			}
		})
	}
}

// onDefect reports a panic in the goroutine of one client. It is a bug, and ends that client's connection only.
func (s *Server) onDefect(remote netip.AddrPort, v any) {
	s.cfg.Event(Event{Remote: remote, Err: fmt.Errorf("%w: %v\n%s", verbs.ErrDefect, v,
		debug.Stack())})
}

// full reports whether another client would be rejected.
func (s *Server) full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.qps) >= s.maxClients
}

// admit counts a client, if the limit allows.
func (s *Server) admit(req *verbs.ConnRequest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.qps) >= s.maxClients {
		return false
	}
	s.qps[req] = nil
	return true
}

func (s *Server) set(req *verbs.ConnRequest, q verbs.QP) {
	s.mu.Lock()
	s.qps[req] = q
	s.mu.Unlock()
}

func (s *Server) dismiss(req *verbs.ConnRequest) {
	s.mu.Lock()
	delete(s.qps, req)
	s.mu.Unlock()
}

// reject tells a client why it is rejected.
func (s *Server) reject(req *verbs.ConnRequest, why string) error {
	s.cfg.Stats.Rejected.Add(1)
	return req.Reject([]byte(why))
}

// SetMaxClients sets the maximum number of clients. Connected ones stay.
func (s *Server) SetMaxClients(n int) {
	s.mu.Lock()
	s.maxClients = n
	s.mu.Unlock()
}

// client serves one connection; its error is about the connection, not about a transfer.
func (s *Server) client(ctx context.Context, req *verbs.ConnRequest) (err error) {
	l, err := newLink(s.cfg.Device, s.cfg.Idle)
	if err != nil {
		return errors.Join(err, s.reject(req, "no resources"))
	}
	s.set(req, l.end.QP)
	c := copying{s: s, l: l, remote: req.Remote}
	defer func() {
		l.shut()
		err = errors.Join(err, c.abandon(), l.end.Close())
	}()
	if err := req.Accept(ctx, l.end.QP, nil); err != nil {
		return err
	}
	l.startLoops()
	for served := false; ; served = true {
		// an idle client yields to others
		m, err := l.receiveMoving(ctx, c.watch())
		if err != nil {
			s.tell(l, err)
			if served || errors.Is(err, ErrPeerClosed) || ctx.Err() != nil {
				return nil // the client has its content; how it closed does not matter
			}
			return err
		}
		if err := c.handleRequest(ctx, &m); err != nil {
			s.tell(l, err)
			return nil // the client gets the reason
		}
	}
}

// refusal is an error that is sent to the client.
type refusal struct {
	code Code
	text string
}

func (r *refusal) Error() string { return r.text }

func refuse(c Code, format string, args ...any) error {
	return &refusal{c, fmt.Sprintf(format, args...)}
}

// tell sends an error to the peer, unless it is an Error that the peer sent.
func (s *Server) tell(l *link, err error) {
	m := Message{Type: TypeError, Code: CodeInternal, Text: err.Error()}
	var r *refusal
	var theirs *RemoteError
	var other *versionError
	switch {
	case errors.As(err, &theirs):
		return
	case errors.As(err, &r):
		m.Code = r.code
	case errors.As(err, &other):
		m.Code, m.Text = CodeVersion, fmt.Sprintf("the server speaks version %d of the transfer "+
			"protocol, the client version %d: upgrade the older xwarp", Version, other.version)
	case errors.Is(err, ErrProtocol), errors.Is(err, ErrMagic), errors.Is(err, ErrShort),
		errors.Is(err, ErrBody):
		m.Code = CodeProtocol
	case errors.Is(err, context.Canceled):
		m.Code, m.Text = CodeShutdown, "the server is stopping"
	}
	l.postMessage(&m)
}
