package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"xwarp/ddp"
	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/device"
	"xwarp/engine/internal/core"
	"xwarp/engine/plain"
	"xwarp/engine/transfer"
	"xwarp/engine/verbs"
)

// export is one [[export]]: a listener of the daemon that offers memory or files to peers.
type export struct {
	set           *Set
	cfg           config.Export
	log           *slog.Logger
	dev           *device.Device
	stopListening context.CancelFunc
	running       sync.WaitGroup

	connLife  context.Context // done when the time for a graceful close is over
	killConns context.CancelFunc

	content
	pd  *core.PD
	mr  *core.MR
	srv *transfer.Server // of a directory

	mu      sync.Mutex
	conns   map[*core.QP]*peerConn
	failed  error // why the export is unusable, or could not be opened; nil if usable
	waiting bool  // ReviveLoop reopens it
	flusher flusher
	count   *counts
}

// counts are the counters of all exports that have had one name.
type counts struct {
	flushes atomic.Uint64
	transfer.Stats
}

// content is the memory and files of an export, which outlive the device.
type content struct {
	mem  []byte // the region that peers access; nil for a directory
	file *os.File
	tree *transfer.Tree // of a directory
}

func (c *content) isEmpty() bool {
	return c.mem == nil && c.file == nil && c.tree == nil
}

// accessOf are the rights of peers by export.access.
var accessOf = map[string]ddp.Access{
	config.AccessRead: verbs.RemoteRead, config.AccessWrite: verbs.RemoteWrite,
	config.AccessReadWrite: verbs.RemoteRead | verbs.RemoteWrite,
}

// newExport creates an export without opening it. ctx is done when the export must stop listening.
func (s *Set) newExport(c config.Export, v *device.Device) (e *export, ctx context.Context) {
	e = &export{set: s, cfg: c, log: s.log.With("export", c.Name), dev: v,
		conns: map[*core.QP]*peerConn{}, count: s.countsOf(c.Name)}
	e.flusher.sync = func(from, to uint64) error { return unix.Msync(e.mem[from:to], unix.MS_SYNC) }
	e.connLife, e.killConns = context.WithCancel(context.Background())
	ctx, e.stopListening = context.WithCancel(context.Background())
	return e, ctx
}

// openExport opens an export on a device, with the content of the previous export, which may be nil. On an error that
// export keeps its content.
func (s *Set) openExport(c config.Export, v *device.Device, before *export) (*export, error) {
	e, ctx := s.newExport(c, v)
	if before != nil {
		e.takeContent(before)
	}
	var err error
	if c.Serve == config.ServeMemory {
		err = e.openMemory(ctx)
	} else {
		err = e.openDirectory(ctx)
	}
	if err != nil {
		e.stopListening()
		if before != nil {
			before.takeContent(e)
		}
		return nil, errors.Join(fmt.Errorf("export %s: %w", c.Name, err), e.free())
	}
	e.log.Info("export is open", "device", e.dev.Name, "listen", c.Listen, "memory", c.Memory,
		"serve", c.Serve)
	return e, nil
}

// openMemory registers the memory and accepts connections to it until ctx is done.
func (e *export) openMemory(ctx context.Context) (err error) {
	if e.mem == nil {
		if err := e.mapMemory(); err != nil {
			return err
		}
	}
	if e.pd, err = e.dev.Core.NewPD(); err != nil {
		return err
	}
	if e.mr, err = e.pd.RegMRIOVA(e.mem, 0, accessOf[e.cfg.Access]); err != nil {
		return err
	}
	list, err := verbs.ListenAll(e.dev.Core, e.cfg.Listen.All(),
		verbs.ListenConfig{DSCP: e.cfg.DSCP})
	if err != nil {
		return err
	}
	e.running.Go(func() { e.watchMemory(ctx, e.mr.Failed(), e.mr.Err) })
	for _, l := range list {
		e.running.Go(func() {
			defer l.Close()
			for {
				r, err := l.Accept(ctx)
				if err != nil {
					return
				}
				e.running.Go(func() { e.serveConn(r) })
			}
		})
	}
	return nil
}

// mapMemory maps the memory that the configuration describes.
func (e *export) mapMemory() (err error) {
	n := int(e.cfg.Size)
	flags := unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	fd := -1
	switch e.cfg.Memory {
	case config.MemoryHugePages:
		flags |= unix.MAP_HUGETLB
	case config.MemoryFile:
		flags = unix.MAP_SHARED
		if n, err = e.openFile(); err != nil {
			return err
		}
		fd = int(e.file.Fd())
	}
	prot := unix.PROT_READ | unix.PROT_WRITE
	if e.mem, err = unix.Mmap(fd, 0, n, prot, flags); err != nil {
		if e.cfg.Memory == config.MemoryHugePages {
			return fmt.Errorf(
				"%s of huge pages: %w (reserve them: sysctl vm.nr_hugepages=%d)",
				plain.Size(uint64(n)), err,
				(n+2<<20-1)/(2<<20))
		}
		return fmt.Errorf("mapping %s: %w", plain.Size(uint64(n)), err)
	}
	return nil
}

// openFile opens the file, and extends it to the configured size. If the file system can, it allocates all blocks, so
// that no write to the mapping fails because the disk is full.
func (e *export) openFile() (int, error) {
	f, err := os.OpenFile(e.cfg.Path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return 0, err
	}
	e.file = f
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return 0, fmt.Errorf("%s: another process has locked the file: %w", e.cfg.Path, err)
	}
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	n := int64(e.cfg.Size)
	switch {
	case st.Mode().Type() != fs.FileMode(0):
		return 0, fmt.Errorf("%s is not a regular file", e.cfg.Path)
	case n == 0:
		n = st.Size()
	case n < st.Size():
		return 0, fmt.Errorf("%s has %d bytes, and export.size = %d would truncate it: use a larger "+
			"size, or 0", e.cfg.Path, st.Size(), n)
	}
	if n == 0 {
		return 0, fmt.Errorf("%s is empty: set export.size",
			e.cfg.Path)
	}
	if err := unix.Fallocate(int(f.Fd()), 0, 0, n); err != nil {
		if !errors.Is(err, unix.EOPNOTSUPP) {
			return 0, fmt.Errorf("%s: %s of disk: %w", e.cfg.Path, plain.Size(uint64(n)), err)
		}
		if err := f.Truncate(n); err != nil {
			return 0, err
		}
	}
	return int(n), nil
}

// errRange is wrapped if a flush is outside of the file.
var errRange = errors.New("not a range of a file region")

// flush writes the range [off, off+n) of a file, as written by peers, to disk; n = 0 means everything from off on. It
// returns the number of bytes.
func (e *export) flush(off, n uint64) (uint64, error) {
	size := uint64(len(e.mem))
	if e.file == nil || off > size || n > size-off {
		return 0, fmt.Errorf("export %s: %w: %d bytes at %d of %d", e.cfg.Name, errRange, n, off,
			size)
	}
	n = cmp.Or(n, size-off)
	page := uint64(os.Getpagesize())
	if err := e.flusher.flush(off/page*page, off+n); n > 0 && err != nil {
		return 0, fmt.Errorf("export %s: writing to disk: %w", e.cfg.Name, err)
	}
	e.count.flushes.Add(1)
	return n, nil
}

// stop closes the listener and the connections, gracefully until ctx is done.
func (e *export) stop(ctx context.Context) {
	e.stopListening()
	e.mu.Lock()
	var list []*core.QP
	var starting []chan struct{}
	for q, c := range e.conns {
		list, starting = append(list, q), append(starting, c.acceptDone)
	}
	e.mu.Unlock()
	for _, c := range starting { // a connection can close gracefully only after it is established here
		select {
		case <-c:
		case <-ctx.Done():
		}
	}
	device.Disconnect(ctx, list)
	e.killConns()
	e.running.Wait()
}

// free frees the memory. The export must have been stopped, or its device closed.
func (e *export) free() (err error) {
	if e.mr != nil {
		err = verbs.IgnoreClosed(e.mr.Close())
	}
	if e.pd != nil && err == nil {
		err = verbs.IgnoreClosed(e.pd.Close())
	}
	if err != nil {
		return fmt.Errorf("export %s: %w", e.cfg.Name, err)
	}
	if e.tree != nil {
		err = e.tree.Close()
	}
	if e.mem != nil {
		err = errors.Join(err, unix.Munmap(e.mem))
	}
	if e.file != nil {
		err = errors.Join(err, e.file.Sync(), e.file.Close())
	}
	e.mr, e.pd, e.content = nil, nil, content{}
	return err
}

// allows reports whether a peer may connect.
func (e *export) allows(a netip.Addr) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.cfg.Allow) == 0 || slices.ContainsFunc(e.cfg.Allow, func(p netip.Prefix) bool {
		return p.Contains(a.Unmap())
	})
}

// addTo adds the export to a snapshot.
func (e *export) addTo(v *control.Snapshot) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.count
	if e.cfg.Serve == config.ServeDirectory {
		v.Statistics = append(v.Statistics, control.Statistic{Port: e.dev.Port(),
			Export: e.cfg.Name, Part: "transfer", Counters: control.Counters(&n.Stats)})
	}
	s := control.ExportState{
		Name: e.cfg.Name, Device: e.dev.Name, Listen: e.cfg.Listen.String(), Serve: e.cfg.Serve,
		Memory: e.cfg.Memory, Path: e.cfg.Path,
		Size: int64(len(e.mem)), Access: e.cfg.Access, Connections: len(e.conns),
		Rejected: n.Rejected.Load(), Flushes: n.flushes.Load(), Puts: n.Puts.Load(),
		PutBytes: n.PutBytes.Load(), Gets: n.Gets.Load(), GetBytes: n.GetBytes.Load(),
		Failed: n.Failed.Load(),
		Error:  verbs.ErrorText(e.failed),
	}
	if e.srv != nil {
		s.Connections = len(e.srv.QPs())
	}
	if e.cfg.Serve == config.ServeDirectory {
		s.Memory, s.Size, s.Used = "", int64(e.cfg.Size), e.used()
	}
	v.Exports = append(v.Exports, s)
}

// addQPsTo adds the connections of an export to a snapshot.
func (e *export) addQPsTo(v *control.Snapshot) {
	e.mu.Lock()
	var list []verbs.QP
	for q := range e.conns {
		list = append(list, q)
	}
	e.mu.Unlock()
	if e.srv != nil {
		list = e.srv.QPs()
	}
	states := make([]control.QPState, len(list))
	for i := range states {
		states[i].Owner, states[i].Port = control.Owner{Export: e.cfg.Name}, e.dev.Port()
	}
	device.FillQPs(states, list)
	v.QPs = append(v.QPs, states...)
}
