package session

import (
	"fmt"

	"xwarp/engine/daemon/control"
	"xwarp/engine/verbs"
)

// mw is a memory window of a session. Queue pairs bind it by work requests.
type mw struct {
	object
	pd *pd
	mw verbs.MW
}

func (*mw) String() string { return "memory window" }

func (w *mw) numbers() (kind, object string) { return "mw", fmt.Sprintf("mwn %d", w.handle) }

func (s *Session) allocMW(a *control.AllocMWArgs) (any, error) {
	p, err := find[*pd](s, a.PD)
	if err != nil {
		return nil, err
	}
	w, err := charge(s, mwCost, p.pd.AllocMW)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p.mws++
	return control.AllocMWResult{Handle: s.addObject(&mw{pd: p, mw: w}), STag: w.STag()}, nil
}

// closeMW closes w, which must have been removed from the table.
func (s *Session) closeMW(w *mw) error {
	err := verbs.IgnoreClosed(w.mw.Close())
	s.mu.Lock()
	w.pd.mws--
	s.mu.Unlock()
	s.account.Release(mwCost)
	return err
}
