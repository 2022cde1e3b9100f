package session

import (
	"context"

	"xwarp/engine/budget"
	"xwarp/engine/daemon/control"
)

// blockingHandler executes a request that may block; handler executes one that does not.
type (
	blockingHandler func(s *Session, ctx context.Context, r *control.Request) (any, error)
	handler         func(s *Session, r *control.Request, files []int) (any, error)
)

// withFiles is a result with descriptors. reply sends them unless the request failed, and closes them in any case.
type withFiles struct {
	result any
	files  []int
}

// takesFiles converts a function with arguments and descriptors to a handler.
func takesFiles[A any](f func(*Session, *A, []int) (any, error)) handler {
	return func(s *Session, r *control.Request, files []int) (any, error) {
		var a A
		if err := r.ParseArgs(&a); err != nil {
			return nil, err
		}
		return f(s, &a, files)
	}
}

// returnsResult converts a function with arguments and a result to a handler.
func returnsResult[A any](f func(*Session, *A) (any, error)) handler {
	return takesFiles(func(s *Session, a *A, _ []int) (any, error) { return f(s, a) })
}

// returnsNothing converts a function with arguments only to a handler.
func returnsNothing[A any](f func(*Session, *A) error) handler {
	return returnsResult(func(s *Session, a *A) (any, error) { return nil, f(s, a) })
}

// uses is returnsResult for requests whose only argument is an object.
func uses[T entry](f func(*Session, T) (any, error)) handler {
	return returnsResult(func(s *Session, a *control.Object) (any, error) {
		v, err := find[T](s, a.Handle)
		if err != nil {
			return nil, err
		}
		return f(s, v)
	})
}

// mayBlock converts a function with arguments and a result to a blockingHandler.
func mayBlock[A any](f func(*Session, context.Context, *A) (any, error)) blockingHandler {
	return func(s *Session, ctx context.Context, r *control.Request) (any, error) {
		var a A
		if err := r.ParseArgs(&a); err != nil {
			return nil, err
		}
		return f(s, ctx, &a)
	}
}

// object is embedded in all objects of a session.
type object struct {
	handle control.Handle
	cost   budget.Amounts
}

func (o *object) self() *object { return o }

// numbers describes the object for the events of its creation and its end. An object with an empty kind has no events.
func (o *object) numbers() (kind, object string) { return "", "" }

// busy returns an error if the object cannot be destroyed now.
func (o *object) busy() error { return nil }

// entry is an object in a session's table.
type entry interface {
	self() *object
	numbers() (kind, object string)
	busy() error    // must be called with Session.mu held
	String() string // kind of object; works on nil
}

// addObject adds an object to the table and returns its handle. It must be called with mu held.
func (s *Session) addObject(o entry) control.Handle {
	s.last++
	o.self().handle = s.last
	s.objects[s.last] = o
	s.record(control.ChangeNew, o)
	return s.last
}

// removeObject removes an object from the table. It must be called with mu held.
func (s *Session) removeObject(o entry) {
	delete(s.objects, o.self().handle)
	s.record(control.ChangeDel, o)
}

// findLocked returns the object with handle h, or an error if it is not of kind T. It must be called with Session.mu
// held.
func findLocked[T entry](s *Session, h control.Handle) (T, error) {
	v, ok := s.objects[h].(T)
	if !ok {
		return v, control.Errorf(control.CodeUnknown, "no %s %d", v.String(), h)
	}
	return v, nil
}

func find[T entry](s *Session, h control.Handle) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return findLocked[T](s, h)
}

// removeIdle removes an object from the table and returns it, or fails if it is busy or not there.
func removeIdle[T entry](s *Session, h control.Handle) (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := findLocked[T](s, h)
	if err == nil {
		err = v.busy()
	}
	if err == nil {
		s.removeObject(v)
	}
	return v, err
}

// removes returns a handler that removes an object from the table, unless it is busy, and calls end for it.
func removes[T entry](end func(*Session, T) error) handler {
	return returnsNothing(func(s *Session, a *control.Object) error {
		v, err := removeIdle[T](s, a.Handle)
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

// objectsLocked returns the objects of one kind. It must be called with mu held.
func objectsLocked[T entry](s *Session) (list []T) {
	for _, o := range s.objects {
		if v, ok := o.(T); ok {
			list = append(list, v)
		}
	}
	return list
}

// objectsOf returns the objects of one kind.
func objectsOf[T entry](s *Session) []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return objectsLocked[T](s)
}

// removeAll removes the objects of one kind from the table and returns them.
func removeAll[T entry](s *Session) []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := objectsLocked[T](s)
	for _, v := range list {
		s.removeObject(v)
	}
	return list
}

// charge reserves cost in the account of the session's user and runs open. If open fails, it releases cost.
func charge[T any](s *Session, cost budget.Amounts, open func() (T, error)) (v T, err error) {
	if err = s.reserve(cost); err != nil {
		return v, err
	}
	if v, err = open(); err != nil {
		s.account.Release(cost)
	}
	return v, err
}
