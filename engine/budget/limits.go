package budget

// Limits, with the attack or exhaustion that they prevent. Configurable limits have their defaults in
// engine/daemon/config/default.toml.

import (
	"time"

	"xwarp/tcp/tick"
)

// Kind is a resource that is limited per user or tenant, over all their programs. The name of a kind below Limited is
// its key in [limits].
type Kind int

// The kinds.
const (
	// Sessions limits programs: each costs a descriptor, two goroutines, and a thread while the kernel handles its
	// request.
	Sessions Kind = iota
	// PDs, MRs, CQs, SRQs, QPs and Listeners limit the tables of the workers, and how long the end of a program blocks
	// them.
	PDs
	MRs
	// Memory limits the bytes of regions. The pages belong to the programs (see control.Mapper); the daemon pays for
	// address space, page tables and the time to map them.
	Memory
	CQs
	// Completions and WorkRequests limit queue entries, which workers scan when a connection ends.
	Completions
	SRQs
	QPs
	WorkRequests
	Listeners
	// DaemonMemory limits the bytes that the daemon allocates for programs: work queues, tables of RDMA Reads, and
	// buffers of connections and connection requests. A few objects of maximum size would cost gigabytes.
	DaemonMemory
	// Connects limits connections being established: each holds a port, a half-open connection, a goroutine, and a
	// neighbour request until it is answered.
	Connects
	// Mappings limits shared memory mappings of the process, which the kernel limits too. Each is charged to its user
	// where it is made (control.Payer).
	Mappings
	// Descriptors limits open files of the process: sockets, eventfds, reserved ports.
	Descriptors
	// Kinds is the number of kinds.
	Kinds
	// Limited is the number of kinds with a key in [limits]. These limits also bound the other kinds, see
	// Amounts.Needs.
	Limited = Mappings
)

var names = [Kinds]string{"sessions", "pds", "mrs", "memory", "cqs", "completions", "srqs", "qps",
	"work_requests", "listeners", "daemon_memory", "connects", "mappings", "descriptors"}

func (k Kind) String() string { return names[k] }

// Amounts has an amount of each kind.
type Amounts [Kinds]int64

// needs has the maximum of mappings and descriptors per object of each kind. A completion queue maps a second ring
// during a resize.
var needs = [Limited]Amounts{
	Sessions:  {Mappings: 1, Descriptors: 3},
	MRs:       {Mappings: 1},
	CQs:       {Mappings: 2, Descriptors: 1},
	SRQs:      {Mappings: 1},
	QPs:       {Mappings: 1, Descriptors: 1},
	Listeners: {Descriptors: 2},
}

// Needs returns a with the maximum of mappings and descriptors that its objects can take.
func (a Amounts) Needs() Amounts {
	for k := range Limited {
		for _, of := range []Kind{Mappings, Descriptors} {
			a[of] += min(a[k], 1<<40) * needs[k][of] // avoids an overflow
		}
	}
	return a
}

// MaxMappings limits the mappings of all users together to five eighths of the default of vm.max_map_count. At the
// kernel's limit the daemon's heap cannot grow and the Go runtime ends the process, which a dozen users within their
// limits could cause.
const MaxMappings = 40 << 10

// Shared resources are divided so that no user can take the share of others.
const (
	// reserve: 1/reserve of the whole is only for users with less than a basic share.
	reserve = 4
	// basic: each user may have 1/basic of the whole from the reserve.
	basic = 256
)

// Share returns the maximum for one user. bound is the maximum for all users, inUse the amount used by the others. The
// share is half of what they leave of the unreserved part, but at least a basic share. So the first basic/reserve new
// users get room whatever others within their limits use.
func Share(bound, inUse int64) int64 {
	half := (bound - bound/reserve - inUse + 1) / 2
	return max(0, min(max(half, bound/basic, 1), bound-inUse))
}

// TenantShare returns the maximum that can be guaranteed to each of n tenants, where bound is the maximum for all. A
// quarter of bound is left for users outside tenants.
func TenantShare(bound int64, n int) int64 { return (bound - bound/reserve) / int64(n) }

// DaemonMemory charged for objects without a size of their own, in bytes.
const (
	// SessionMemory is charged for a program: the goroutine of its socket, its pump, tables, and a request of maximum
	// length.
	SessionMemory = 128 << 10
	// PendingMemory is charged for a pending request, with its goroutine and arguments.
	PendingMemory = 16 << 10
	// ObjectMemory is the minimum charged for a region, domain, queue, queue pair or listener: records on each worker,
	// goroutines.
	ObjectMemory = 4 << 10
)

// OperatorSessions is the maximum number of programs on the operator socket, which no share limits. RootSessions is the
// number of root's programs admitted to the common socket beyond daemon.clients.
const (
	OperatorSessions = 16
	RootSessions     = 8
)

// MaxTenants limits the control sockets: each costs a descriptor, a goroutine and an entry in snapshots and metrics.
const MaxTenants = 1024

// GarbagePercent limits the garbage in the heap, as GOGC does. Otherwise a program that creates and closes objects all
// the time could make the daemon hold twice its DaemonMemory. The data path allocates nothing, so only the creation of
// objects pays.
const GarbagePercent = 10

// MaxPendingArgs is the maximum size in bytes of the arguments of a pending request, which are kept.
const MaxPendingArgs = 4 << 10

// Limits of costs that are not counted per object.
const (
	// snapshotEvery and snapshotShare limit the snapshots for the programs of a user: at most one per snapshotEvery,
	// and 1/snapshotShare of the time. Each queue pair of the user costs some 50 us of CPU time and 2 KiB.
	snapshotEvery = 100 * time.Millisecond
	snapshotShare = 10
	// UserIdle is how long the account of a user who holds nothing is kept, for its rates and so that the operator sees
	// refusals. MaxIdleUsers limits such accounts, because users may be many (subordinate UIDs, services).
	UserIdle     = tick.Minute
	MaxIdleUsers = 256
)

// Limits of remote addresses.
var (
	// DefaultPeer applies to an IPv4 address or an IPv6 /64. HalfOpen keeps a SYN flood from filling backlogs; further
	// SYNs are answered with cookies. Startup stops connections that stay silent after the handshake, which cost a
	// session each until the start-up times out. Connections keeps one peer from filling the table of a worker.
	DefaultPeer = PeerLimits{HalfOpen: 64, Startup: 1024, Connections: 8192}
	// DefaultNetwork applies to an IPv4 /24 or an IPv6 /48, which one owner can fill with peers. It leaves half of a
	// backlog and of a worker's table for others.
	DefaultNetwork = PeerLimits{HalfOpen: 128, Startup: 2048, Connections: 32768}
)

// Limits of the accounts themselves: a peer with many addresses must neither fill the memory nor lock out peers without
// an account.
const (
	// MaxPeers and MaxNetworks limit the accounts of peers and networks. A peer without an account is charged to its
	// network; a network without one is charged to a common account.
	MaxPeers    = 16384
	MaxNetworks = 8192
	// MaxPeersOfNetwork is the maximum part of MaxPeers for one network.
	MaxPeersOfNetwork = 256
	// PeerIdle is how long an account that holds nothing is kept, for its rate and so that the operator sees refusals.
	PeerIdle = tick.Minute
	// MaxPeersShown limits the accounts in a snapshot.
	MaxPeersShown = 1024
)
