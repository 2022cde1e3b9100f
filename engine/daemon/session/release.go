package session

import (
	"fmt"

	"xwarp/engine/daemon/device"

	"golang.org/x/sync/errgroup"
)

// release gives back everything of a session, in the order in which objects depend on each other: first what
// could make new ones, then connections, then the memory that they used.
func (s *Session) release() {
	s.mu.Lock()
	for _, cancel := range s.pending {
		cancel()
	}
	s.mu.Unlock()
	for _, c := range objectsOf[*capture](s) {
		c.abort()
	}
	s.waiting.Wait()
	if s.pumpDone != nil {
		s.ringer.Close()
		<-s.pumpDone
	}
	for _, l := range removeAll[*listener](s) {
		s.closeListener(l)
	}
	for _, q := range removeAll[*request](s) {
		q.r.Reject(nil)
		s.account.Release(q.cost)
	}
	s.releaseQPs()
	s.releaseMemory()
	if s.bell != nil {
		s.bell.Close()
	}
}

// releaseMemory gives back the memory and queues that no queue pair uses any more, and returns what stays.
func (s *Session) releaseMemory() (left []error) {
	for _, q := range removeUnused[*srq](s) {
		s.closeSRQ(q)
	}
	for _, w := range removeAll[*mw](s) {
		s.closeMW(w)
	}
	for _, m := range objectsOf[*mr](s) {
		if err := s.closeMR(m); err != nil {
			left = append(left, fmt.Errorf("memory region %d: %w", m.handle, err))
		}
	}
	for _, c := range removeUnused[*cq](s) {
		s.closeCQ(c)
	}
	for _, p := range removeUnused[*pd](s) {
		if err := device.IgnoreClosed(s.closePD(p)); err != nil {
			left = append(left, fmt.Errorf("protection domain %d: %w", p.handle, err))
		}
	}
	return left
}

// removeUnused takes the objects of one kind out of the table that nothing uses.
func removeUnused[T entry](s *Session) (list []T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range objectsLocked[T](s) {
		if v.busy() == nil {
			delete(s.objects, v.self().handle)
			list = append(list, v)
		}
	}
	return list
}

func (s *Session) releaseQPs() {
	var group errgroup.Group
	group.SetLimit(maxClosers)
	for _, q := range removeAll[*qp](s) {
		group.Go(func() error { return s.closeQP(q) })
	}
	group.Wait()
}
