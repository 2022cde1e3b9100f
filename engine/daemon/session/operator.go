package session

import (
	"context"

	"xwarp/engine/daemon/control"
)

// confirm is the operator's: the interfaces are.
func (s *Session) confirm(*control.Request, []int) (any, error) {
	if err := s.onlyOperator("confirm"); err != nil {
		return nil, err
	}
	r, err := s.d.Confirm()
	if err != nil {
		return nil, err
	}
	if r.State == control.ConfirmDone {
		s.log.Info("confirmed: the daemon stays")
	}
	return &r, nil
}

// reloadConfig is the operator's request.
func (s *Session) reloadConfig(context.Context, *control.Request) (any, error) {
	if err := s.onlyOperator("reload the configuration"); err != nil {
		return nil, err
	}
	r, err := s.d.ReloadConfig()
	if err != nil {
		return nil, err
	}
	return &r, nil
}

// flush is the operator's: exports are.
func (s *Session) flush(_ context.Context, a *control.FlushArgs) (any, error) {
	if err := s.onlyOperator("have exports flushed, and peers on their connections"); err != nil {
		return nil, err
	}
	return nil, s.d.FlushExport(a.Export)
}
