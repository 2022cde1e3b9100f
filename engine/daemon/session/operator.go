package session

import (
	"context"

	"xwarp/engine/daemon/control"
)

// confirmReachable answers OpConfirm (operator only).
func (s *Session) confirmReachable(*control.Request, []int) (any, error) {
	if err := s.onlyOperator("confirm"); err != nil {
		return nil, err
	}
	r, err := s.d.Confirm()
	if err == nil && r.State == control.ConfirmDone {
		s.log.Info("xwarp confirm received: xwarpd keeps running")
	}
	return r, err
}

// reloadConfig answers OpReload (operator only).
func (s *Session) reloadConfig(context.Context, *control.Request) (any, error) {
	if err := s.onlyOperator("reload the configuration"); err != nil {
		return nil, err
	}
	return s.d.ReloadConfig()
}

// flush answers OpFlush (operator only).
func (s *Session) flush(_ context.Context, a *control.FlushArgs) (any, error) {
	if err := s.onlyOperator("flush an export (a peer may, on its connection)"); err != nil {
		return nil, err
	}
	return nil, s.d.FlushExport(a.Export)
}
