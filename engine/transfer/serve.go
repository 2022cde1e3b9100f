package transfer

import (
	"context"
	"crypto/sha256"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"

	"xwarp/ddp"
	"xwarp/engine"
)

// put takes content into a staging region and makes it the region's when it is whole.
func (s *Server) put(ctx context.Context, l *link, m *Message, ev *Event) error {
	size := s.cfg.Region.Size()
	room := size
	if m.Length != Unknown {
		if m.Length > uint64(size) {
			return refuse(CodeTooLarge, "%d octets do not fit the region of %d: start the server with a larger --size", m.Length, size)
		}
		room = int64(m.Length)
	}
	if err := s.acquire(ctx, l, s.putting, 1); err != nil {
		return err
	}
	defer s.putting.Release(1)
	stage, err := newStage(l, room)
	if err != nil {
		return refuse(CodeInternal, "no memory to take %d octets: %v", room, err)
	}
	defer stage.free()
	if err := l.send(&Message{Type: TypeRegion, Length: uint64(room), STag: stage.stag(), TO: 0}); err != nil {
		return err
	}
	done, err := l.expect(ctx, TypeDone)
	if err != nil {
		return err
	}
	if done.Length > uint64(room) || m.Length != Unknown && done.Length != m.Length {
		return refuse(CodeProtocol, "%d octets were announced and %d are said to have been written", m.Length, done.Length)
	}
	if err := stage.seal(); err != nil {
		return err
	}
	content := stage.mem[:done.Length]
	sum := Sum(sha256.Sum256(content))
	if sum != done.Sum {
		return refuse(CodeSum, "SHA-256 of what arrived is %x, of what was sent %x; the content of the region is as it was", sum, done.Sum)
	}
	if err := s.commit(ctx, l, content, sum); err != nil {
		return err
	}
	ev.Octets, ev.Sum = int64(done.Length), sum
	return l.send(&Message{Type: TypeDone, Length: done.Length, Sum: sum})
}

func (s *Server) commit(ctx context.Context, l *link, content []byte, sum Sum) error {
	all := int64(s.cfg.MaxClients)
	if err := s.acquire(ctx, l, s.content, all); err != nil {
		return err
	}
	s.cfg.Region.commit(content, sum)
	s.content.Release(all)
	return s.cfg.Region.sync()
}

// get lets the client read the region.
func (s *Server) get(ctx context.Context, l *link, m *Message, ev *Event) error {
	if err := s.acquire(ctx, l, s.content, 1); err != nil {
		return err
	}
	defer s.content.Release(1)
	r := s.cfg.Region
	n := r.length
	switch {
	case m.Length > uint64(r.Size()):
		return refuse(CodeTooLarge, "%d octets are wanted, and the region has %d", m.Length, r.Size())
	case m.Length != 0:
		n = int64(m.Length)
	case !r.filled:
		return refuse(CodeEmpty, "nothing was put into the region yet (--length reads its memory as it is)")
	}
	sum := s.sum(n)
	reply := Message{Type: TypeRegion, Length: uint64(n), Sum: sum}
	if n > 0 {
		mr, err := l.pd.RegMR(r.mem[:n], engine.RemoteRead)
		if err != nil {
			return err
		}
		defer mr.Close()
		reply.STag = mr.STag()
	}
	if err := l.send(&reply); err != nil {
		return err
	}
	if _, err := l.expect(ctx, TypeDone); err != nil {
		return err
	}
	ev.Octets, ev.Sum = n, sum
	return nil
}

// sum is Region.checksum for several gets at once.
func (s *Server) sum(n int64) Sum {
	s.sums.Lock()
	defer s.sums.Unlock()
	return s.cfg.Region.checksum(n)
}

// acquire waits for a turn. It gives up when the client goes away meanwhile.
func (s *Server) acquire(ctx context.Context, l *link, w *semaphore.Weighted, n int64) error {
	ctx, stop := l.bound(ctx)
	defer stop()
	if w.Acquire(ctx, n) != nil {
		return context.Cause(ctx)
	}
	return nil
}

// stage is the memory that one put writes to.
type stage struct {
	mem []byte
	mr  *engine.MR
}

func newStage(l *link, n int64) (st *stage, err error) {
	st = &stage{}
	if n == 0 {
		return st, nil
	}
	if st.mem, err = mapAnonymous(n); err != nil {
		return nil, err
	}
	if st.mr, err = l.pd.RegMR(st.mem, engine.RemoteWrite); err != nil {
		st.free()
		return nil, err
	}
	return st, nil
}

func (st *stage) stag() ddp.STag {
	if st.mr == nil {
		return 0
	}
	return st.mr.STag()
}

// seal takes the STag away from the client: the memory changes no more.
func (st *stage) seal() error {
	if st.mr == nil {
		return nil
	}
	err := st.mr.Close()
	if err == nil {
		st.mr = nil
	}
	return err
}

// free gives the memory back, which may be done only when no STag leads to it.
func (st *stage) free() {
	if st.seal() == nil && st.mem != nil {
		unix.Munmap(st.mem)
		st.mem = nil
	}
}
