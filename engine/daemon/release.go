package daemon

import (
	"sync"

	"xwarp/engine/daemon/control"
)

// release gives back everything of a session, in the order in which objects depend on each other: first what
// could make new ones, then connections, then the memory that they used.
func (s *session) release() {
	s.mu.Lock()
	for _, cancel := range s.pending {
		cancel()
	}
	s.mu.Unlock()
	for _, c := range all(s, s.captures) {
		c.abort()
	}
	s.tasks.Wait()
	if s.pumped != nil {
		s.ringer.Close()
		<-s.pumped
	}
	for _, l := range empty(s, s.listeners) {
		l.l.Close()
		s.account.give(l.cost)
	}
	for _, q := range empty(s, s.requests) {
		q.r.Reject(nil)
		s.account.give(q.cost)
	}
	s.releaseQPs()
	for _, q := range empty(s, s.srqs) {
		if q.users == 0 { // else a queue pair did not end
			s.closeSRQ(q)
		}
	}
	for _, m := range all(s, s.mrs) {
		if err := s.closeMR(m); err != nil {
			s.log.Error("memory region stays mapped", "mr", m.handle, "error", err)
		}
	}
	for _, c := range all(s, s.cqs) {
		if c.users == 0 { // else a queue pair did not end
			s.closeCQ(c)
		}
	}
	for _, p := range empty(s, s.pds) {
		if err := noneLeft(p.pd.Close()); err != nil {
			s.log.Error("protection domain stays", "pd", p.handle, "error", err)
		}
		s.account.give(pdCost)
	}
	if s.bell != nil {
		s.bell.Close()
	}
}

func (s *session) releaseQPs() {
	var group sync.WaitGroup
	turn := make(chan struct{}, closers)
	for _, q := range empty(s, s.qps) {
		turn <- struct{}{}
		group.Go(func() {
			s.closeQP(q)
			<-turn
		})
	}
	group.Wait()
}

// all returns the objects of a table, empty takes them out too.
func all[T any](s *session, table map[control.Handle]T) (list []T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range table {
		list = append(list, v)
	}
	return list
}

func empty[T any](s *session, table map[control.Handle]T) []T {
	list := all(s, table)
	s.mu.Lock()
	clear(table)
	s.mu.Unlock()
	return list
}
