package daemon

import (
	"context"

	"xwarp/engine/budget"
	"xwarp/engine/daemon/control"
)

// waiter is a request that may wait, handler one that does not; the descriptors that a handler returns are
// closed after the reply.
type (
	waiter  func(s *session, ctx context.Context, r *control.Request) (any, error)
	handler func(s *session, r *control.Request, files []int) (result any, out []int, err error)
)

// passing is a handler with arguments, and descriptors with the request or the reply.
func passing[A any](f func(*session, *A, []int) (any, []int, error)) handler {
	return func(s *session, r *control.Request, files []int) (any, []int, error) {
		var a A
		if err := r.ParseArgs(&a); err != nil {
			return nil, nil, err
		}
		return f(s, &a, files)
	}
}

// query is a handler with arguments and a result.
func query[A any](f func(*session, *A) (any, error)) handler {
	return passing(func(s *session, a *A, _ []int) (any, []int, error) {
		result, err := f(s, a)
		return result, nil, err
	})
}

// order is a handler with arguments.
func order[A any](f func(*session, *A) error) handler {
	return query(func(s *session, a *A) (any, error) { return nil, f(s, a) })
}

// waits is a waiter with arguments.
func waits[A any](f func(*session, context.Context, *A) (any, error)) waiter {
	return func(s *session, ctx context.Context, r *control.Request) (any, error) {
		var a A
		if err := r.ParseArgs(&a); err != nil {
			return nil, err
		}
		return f(s, ctx, &a)
	}
}

// lookUp finds a handle in one of the tables. It is called with the session's mutex held.
func lookUp[T any](table map[control.Handle]T, h control.Handle, what string) (T, error) {
	v, ok := table[h]
	if !ok {
		return v, control.Errorf(control.CodeUnknown, "there is no %s %d", what, h)
	}
	return v, nil
}

func find[T any](s *session, table map[control.Handle]T, h control.Handle, what string) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return lookUp(table, h, what)
}

// remove takes an object out of its table unless busy, which may be nil, has something against it.
func remove[T any](s *session, table map[control.Handle]T, h control.Handle, what string,
	busy func(T) error) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := lookUp(table, h, what)
	if err == nil && busy != nil {
		err = busy(v)
	}
	if err == nil {
		delete(table, h)
	}
	return v, err
}

func busyIf(is bool, format string, args ...any) error {
	if !is {
		return nil
	}
	return control.Errorf(control.CodeBusy, format, args...)
}

// paid returns what open makes, for which the user pays.
func paid[T any](s *session, cost budget.Amounts, open func() (T, error)) (v T, err error) {
	if err = s.take(cost); err != nil {
		return v, err
	}
	if v, err = open(); err != nil {
		s.account.give(cost)
	}
	return v, err
}
