// Package budget is what one user of this host, and one peer, may cost the daemon: each bound with the attack or the exhaustion that
// it stops. What can be configured has its default in engine/daemon/config/default.toml.
package budget

// Kind is something that a user of this host can have too much of, over all programs. Its name is the key in [limits].
type Kind int

// The kinds.
const (
	// Sessions bounds the programs: each costs a descriptor, two goroutines, and a thread while the kernel works on its request.
	Sessions Kind = iota
	// PDs, MRs, CQs, QPs and Listeners bound the tables of the workers, and the time for which a program that ends holds them up.
	PDs
	MRs
	// Memory bounds the octets of the memfds in which regions lie, each counted once and whole. Their pages are the programs'; the
	// daemon pays address space and page tables.
	Memory
	CQs
	// Completions and WorkRequests bound the entries of queues, which workers walk through when a connection ends.
	Completions
	QPs
	WorkRequests
	Listeners
	// Kinds is how many there are.
	Kinds
)

var names = [Kinds]string{"sessions", "pds", "mrs", "memory", "cqs", "completions", "qps", "work_requests", "listeners"}

func (k Kind) String() string { return names[k] }
