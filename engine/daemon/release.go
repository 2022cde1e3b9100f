package daemon

import "golang.org/x/sync/errgroup"

// release gives back everything of a session, in the order in which objects depend on each other: first what
// could make new ones, then connections, then the memory that they used.
func (s *session) release() {
	s.mu.Lock()
	for _, cancel := range s.pending {
		cancel()
	}
	s.mu.Unlock()
	for _, c := range all[*running](s) {
		c.abort()
	}
	s.tasks.Wait()
	if s.pumped != nil {
		s.ringer.Close()
		<-s.pumped
	}
	for _, l := range empty[*listener](s) {
		s.closeListener(l)
	}
	for _, q := range empty[*request](s) {
		q.r.Reject(nil)
		s.account.give(q.cost)
	}
	s.releaseQPs()
	for _, q := range empty[*srq](s) {
		if q.users == 0 { // else a queue pair did not end
			s.closeSRQ(q)
		}
	}
	for _, w := range empty[*mw](s) {
		s.closeMW(w)
	}
	for _, m := range all[*mr](s) {
		if err := s.closeMR(m); err != nil {
			s.log.Error("memory region stays mapped", "mr", m.handle, "error", err)
		}
	}
	for _, c := range all[*cq](s) {
		if c.users == 0 { // else a queue pair did not end
			s.closeCQ(c)
		}
	}
	for _, p := range empty[*pd](s) {
		if err := noneLeft(s.closePD(p)); err != nil {
			s.log.Error("protection domain stays", "pd", p.handle, "error", err)
		}
	}
	if s.bell != nil {
		s.bell.Close()
	}
}

func (s *session) releaseQPs() {
	var group errgroup.Group
	group.SetLimit(closers)
	for _, q := range empty[*qp](s) {
		group.Go(func() error { return s.closeQP(q) })
	}
	group.Wait()
}
