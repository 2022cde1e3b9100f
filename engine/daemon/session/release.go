package session

import (
	"fmt"

	"xwarp/engine/verbs"

	"golang.org/x/sync/errgroup"
)

// release closes all objects of a session, in the order of their dependencies: first the requests that could create new
// ones, then connections, then the memory that they used.
func (s *Session) release() {
	defer s.enterTurn(true)()
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
		q.eng.Reject(nil)
		s.account.Release(q.cost)
	}
	for _, closePort := range s.gidPorts {
		closePort()
	}
	s.releaseQPs()
	s.releaseMemory()
	if s.bellPage != nil {
		s.bellPage.Close()
	}
}

// releaseMemory closes the memory and queues that no queue pair uses any more. It returns why others remain.
func (s *Session) releaseMemory() (kept []error) {
	for _, q := range removeUnused[*srq](s) {
		s.closeSRQ(q)
	}
	for _, w := range removeAll[*mw](s) {
		s.closeMW(w)
	}
	for _, m := range objectsOf[*mr](s) {
		if err := s.closeMR(m); err != nil {
			kept = append(kept, fmt.Errorf("memory region %d: %w", m.handle, err))
		}
	}
	for _, c := range removeUnused[*cq](s) {
		s.closeCQ(c)
	}
	for _, p := range removeUnused[*pd](s) {
		if err := verbs.IgnoreClosed(s.closePD(p)); err != nil {
			kept = append(kept, fmt.Errorf("protection domain %d: %w", p.handle, err))
		}
	}
	return kept
}

// removeUnused removes the objects of one kind that are not busy from the table, and returns them.
func removeUnused[T entry](s *Session) (list []T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range objectsLocked[T](s) {
		if v.busy() == nil {
			s.removeObject(v)
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
