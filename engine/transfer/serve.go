package transfer

import (
	"context"
	"errors"

	"xwarp/engine/host/fault"
	"xwarp/engine/verbs"
)

// put receives bytes into separate memory, which becomes the region's content when complete.
func (s *Server) put(ctx context.Context, l *link, m *Message, ev *Event) error {
	r := s.cfg.Region
	room := r.Size()
	if m.Length != Unknown {
		if m.Length > uint64(room) {
			return refuse(CodeTooLarge, "%d bytes do not fit the region of %d: start the server "+
				"with a larger --size", m.Length, room)
		}
		room = int64(m.Length)
	}
	first := room
	if m.Length == Unknown {
		first = min(room, firstGrant)
	}
	st, err := s.stage(ctx, l, owner(ev.Remote.Addr()), room, first)
	if err != nil {
		return err
	}
	done, err := s.fillReply(ctx, l, st, m.Length)
	if err != nil {
		return err
	}
	ctx, stop := l.untilClosed(ctx)
	defer stop()
	sum, err := s.hash(ctx, st.mem[:done.Length])
	if err == nil && sum != done.Sum {
		err = refuse(CodeSum, "SHA-256 of the received data is %x, of the sent data %x; the content "+
			"of the region is unchanged", sum, done.Sum)
	}
	if err != nil {
		return errors.Join(err, st.drop())
	}
	if err := r.commit(st, int64(done.Length), sum); err != nil {
		return refuse(CodeInternal, "%v", err)
	}
	ev.Bytes, ev.Sum = int64(done.Length), sum
	s.countMoved(true, 1, done.Length)
	return l.postMessage(&Message{Type: TypeDone, Length: done.Length, Sum: sum})
}

// fillReply lets the client write to st until it sends Done. After an error st is freed, now or with the link.
func (s *Server) fillReply(ctx context.Context, l *link, st *stage, announced uint64) (done Message,
	err error) {
	exposed, err := st.grant(l)
	for err == nil {
		w := watch{remaining: uint64(st.ready), contended: func() bool {
			return s.full() || s.cfg.Region.contended(st.who)
		}}
		done, err = l.receiveMoving(ctx, &w)
		if err != nil || done.Type != TypePut || st.ready == st.byteCount {
			break
		}
		if left := l.deregisterNow(exposed); left != nil {
			return done, left
		}
		if exposed, err = nil, st.extend(); err == nil {
			exposed, err = st.grant(l)
		}
	}
	err = checkType(TypeDone, &done, err)
	if exposed != nil && exposed.mr.Err() != nil {
		err = refuse(CodeInternal, "staged data is no longer accessible; the content is "+
			"unchanged: %v", exposed.mr.Err())
	}
	if err == nil && (done.Length > uint64(st.ready) || announced != Unknown &&
		done.Length != announced) {
		err = refuse(CodeProtocol, "%d bytes announced, %d reported as written",
			announced, done.Length)
	}
	if err == nil {
		exposed.setLength(done.Length)
	}
	switch left := l.deregisterNow(exposed); {
	case left != nil:
		return done, errors.Join(err, left)
	case err != nil:
		return done, errors.Join(err, st.drop())
	}
	return done, nil
}

// get lets the client read the current content.
func (s *Server) get(ctx context.Context, l *link, m *Message, ev *Event) error {
	r := s.cfg.Region
	c, err := r.hold()
	if err != nil {
		return err
	}
	n := c.length
	switch {
	case m.Length > uint64(r.Size()):
		err = refuse(CodeTooLarge, "%d bytes requested, but the region has %d", m.Length,
			r.Size())
	case m.Length != 0:
		n = int64(m.Length)
	case !c.filled:
		err = refuse(CodeEmpty, "the region is empty: no put yet (--length reads its memory "+
			"as is)")
	}
	var sum Sum
	if err == nil {
		ctx, stop := l.untilClosed(ctx)
		sum, err = c.checksum(ctx, n, s.hash)
		stop()
	}
	if gone := (*fault.Error)(nil); errors.As(err, &gone) {
		err = r.lose(err)
	}
	if err != nil {
		return errors.Join(err, r.releaseMemory(c))
	}
	if err := s.show(ctx, l, c, n, sum); err != nil {
		return err
	}
	ev.Bytes, ev.Sum = n, sum
	s.countMoved(false, 1, uint64(n))
	return nil
}

// show lets the client read the first n bytes of c, until it sends Done. It releases c.
func (s *Server) show(ctx context.Context, l *link, c *content, n int64, sum Sum) (err error) {
	r := s.cfg.Region
	grant := Message{
		Type: TypeRegion, Length: uint64(n), Sum: sum, Content: uint64(c.length),
	}
	var exposed *registration
	if n > 0 {
		if exposed, err = l.expose(c.mem[:n], verbs.RemoteRead, func() error {
			return r.releaseMemory(c)
		}); err != nil {
			return errors.Join(err, r.releaseMemory(c))
		}
		grant.STag = exposed.mr.STag()
	}
	if err = l.postMessage(&grant); err == nil {
		w := watch{remaining: uint64(n), until: c.revoked, contended: s.full}
		m, e := l.receiveMoving(ctx, &w)
		err = checkType(TypeDone, &m, e)
	}
	if exposed != nil && exposed.mr.Err() != nil {
		err = r.lose(exposed.mr.Err())
	}
	if err != nil {
		if l.deregisterNow(exposed) != nil {
			return err // the link releases c
		}
	} else if err = l.deregister(ctx, exposed); errors.Is(err, ErrPeerClosed) {
		return nil // the client has the reply, and closed before its acknowledgements arrived; the link releases c
	} else if err != nil {
		return err
	}
	return errors.Join(err, r.releaseMemory(c))
}
