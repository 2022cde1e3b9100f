package engine

import "xwarp/engine/verbs"

// NewSinkCQ returns a completion queue that hands each completion to sink on the thread of the worker that
// has it, instead of keeping it for Poll. sink must not block and may call nothing of the engine; *v is valid
// during the call. When it returns false the completion is lost and the queue pair fails, as with a queue
// that is full. Several workers may call at once.
func NewSinkCQ(sink func(v *verbs.Completion) bool) *CQ {
	c, _ := newCQ(1) // a depth of one is always right
	c.sink = sink
	return c
}

// Context implements verbs.QP.
func (q *QP) Context() any { return q.cfg.Context }
