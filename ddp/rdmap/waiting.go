package rdmap

// ULPDUWaiting reports whether NextULPDU would return one now. It is mpa.Waiter.
func (q *QP) ULPDUWaiting() bool {
	if q.term.want || q.state != RTS {
		return q.term.want
	}
	return q.cur != curNone || q.rtr != RTRNone || q.sendReady() || q.responseReady()
}
