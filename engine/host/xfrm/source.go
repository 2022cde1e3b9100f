package xfrm

import "golang.org/x/sys/unix"

// Source is where SAs come from. A Follower is one.
type Source interface {
	// Acquire asks for SAs for an outgoing policy. They come by Options.Notify, or do not.
	Acquire(p *Policy) error
	// Expire says that a limit of sa is reached.
	Expire(sa *SA, hard bool) error
	// Account sets the packets and bytes that sa has carried.
	Account(sa *SA, packets, bytes uint64) error
	// Counters returns the counters, and why the last SA was refused.
	Counters() (n Counters, refused error)
	Close()
}

// Static returns a function like Follow whose State never changes, for tests and demonstrations. A process that uses
// the same keys again repeats sequence numbers, which breaks the encryption.
func Static(s *State) func(Options) (Source, error) {
	return func(o Options) (Source, error) {
		o.Notify(s)
		return static{Counters{Taken: uint64(len(s.Outbound))}}, nil
	}
}

type static struct{ n Counters }

func (static) Acquire(*Policy) error             { return unix.ENOTCONN }
func (static) Expire(*SA, bool) error            { return unix.ENOTCONN }
func (static) Account(*SA, uint64, uint64) error { return nil }
func (s static) Counters() (Counters, error)     { return s.n, nil }
func (static) Close()                            {}
