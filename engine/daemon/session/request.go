package session

import (
	"context"

	"xwarp/engine/budget"
	"xwarp/engine/daemon/control"
)

// waiter is a request that may wait, handler one that does not.
type (
	waiter  func(s *Session, ctx context.Context, r *control.Request) (any, error)
	handler func(s *Session, r *control.Request, files []int) (any, error)
)

// passed is a result that goes with descriptors, which the reply closes.
type passed struct {
	result any
	files  []int
}

// passing is a handler with arguments, and descriptors with the request.
func passing[A any](f func(*Session, *A, []int) (any, error)) handler {
	return func(s *Session, r *control.Request, files []int) (any, error) {
		var a A
		if err := r.ParseArgs(&a); err != nil {
			return nil, err
		}
		return f(s, &a, files)
	}
}

// query is a handler with arguments and a result.
func query[A any](f func(*Session, *A) (any, error)) handler {
	return passing(func(s *Session, a *A, _ []int) (any, error) { return f(s, a) })
}

// order is a handler with arguments.
func order[A any](f func(*Session, *A) error) handler {
	return query(func(s *Session, a *A) (any, error) { return nil, f(s, a) })
}

// waits is a waiter with arguments.
func waits[A any](f func(*Session, context.Context, *A) (any, error)) waiter {
	return func(s *Session, ctx context.Context, r *control.Request) (any, error) {
		var a A
		if err := r.ParseArgs(&a); err != nil {
			return nil, err
		}
		return f(s, ctx, &a)
	}
}

// object is what all objects of a session have.
type object struct {
	handle control.Handle
	cost   budget.Amounts
}

func (o *object) self() *object { return o }

// busy says why the object cannot be destroyed now.
func (o *object) busy() error { return nil }

// entry is an object in a session's table.
type entry interface {
	self() *object
	busy() error    // called with the session's mutex held
	String() string // what it is, also of nil
}

// add gives an object a handle. It is called with mu held.
func (s *Session) add(o entry) control.Handle {
	s.last++
	o.self().handle = s.last
	s.objects[s.last] = o
	return s.last
}

// lookUp finds an object. It is called with the session's mutex held.
func lookUp[T entry](s *Session, h control.Handle) (T, error) {
	v, ok := s.objects[h].(T)
	if !ok {
		return v, control.Errorf(control.CodeUnknown, "there is no %s %d", v.String(), h)
	}
	return v, nil
}

func find[T entry](s *Session, h control.Handle) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return lookUp[T](s, h)
}

// remove takes an object out of the session unless it is busy.
func remove[T entry](s *Session, h control.Handle) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := lookUp[T](s, h)
	if err == nil {
		err = v.busy()
	}
	if err == nil {
		delete(s.objects, h)
	}
	return v, err
}

// destroy is a handler that takes an object out of the session and ends it.
func destroy[T entry](end func(*Session, T) error) handler {
	return order(func(s *Session, a *control.Object) error {
		v, err := remove[T](s, a.Handle)
		if err != nil {
			return err
		}
		return end(s, v)
	})
}

func busyIf(is bool, format string, args ...any) error {
	if !is {
		return nil
	}
	return control.Errorf(control.CodeBusy, format, args...)
}

// has returns the objects of one kind. It is called with mu held.
func has[T entry](s *Session) (list []T) {
	for _, o := range s.objects {
		if v, ok := o.(T); ok {
			list = append(list, v)
		}
	}
	return list
}

// all returns the objects of one kind, empty takes them out too.
func all[T entry](s *Session) []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return has[T](s)
}

func empty[T entry](s *Session) []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := has[T](s)
	for _, v := range list {
		delete(s.objects, v.self().handle)
	}
	return list
}

// paid returns what open makes, for which the user pays.
func paid[T any](s *Session, cost budget.Amounts, open func() (T, error)) (v T, err error) {
	if err = s.reserve(cost); err != nil {
		return v, err
	}
	if v, err = open(); err != nil {
		s.account.Release(cost)
	}
	return v, err
}
