package budget

// The limits of this file name the attack or the exhaustion that they stop. What can be configured has its default in
// engine/daemon/config/default.toml.

import (
	"time"

	"xwarp/tcp/tick"
)

// Kind is something that a user of this host can have too much of, over all programs. Its name is the key in [limits].
type Kind int

// The kinds.
const (
	// Sessions bounds the programs, because each costs a descriptor, two goroutines, and a thread while the kernel
	// works on its request.
	Sessions Kind = iota
	// PDs, MRs, CQs, SRQs, QPs and Listeners bound the tables of the workers, and the time for which a program that
	// ends holds them up.
	PDs
	MRs
	// Memory bounds the bytes of regions. Their pages are the programs' own, see control.Mapper; the
	// daemon pays address space and page tables, and the time to map them.
	Memory
	CQs
	// Completions and WorkRequests bound the entries of queues, which workers walk through when a connection ends.
	Completions
	SRQs
	QPs
	WorkRequests
	Listeners
	// DaemonMemory bounds the bytes that the daemon itself allocates for programs: queues with the room of
	// each work request, tables of RDMA Reads, buffers of connections and of requests to connect. Few objects
	// of the largest size cost gigabytes.
	DaemonMemory
	// Connects bounds the connections that are being opened at a time, because each holds a port, a half-open
	// connection, a goroutine, and, until the neighbour answers, a request to resolve it.
	Connects
	// Mappings are the pieces of shared memory that the process maps. Each mapping charges its user where it
	// is made (control.Payer). The kernel bounds them for the whole process.
	Mappings
	// Descriptors are open files of the process: sockets, eventfds, reserved ports.
	Descriptors
	// Kinds is how many there are.
	Kinds
	// Limited is how many kinds have a key in [limits]. A user's limits of these kinds bound what the others
	// can reach, see Amounts.Needs.
	Limited = Mappings
)

var names = [Kinds]string{"sessions", "pds", "mrs", "memory", "cqs", "completions", "srqs", "qps",
	"work_requests", "listeners", "daemon_memory", "connects", "mappings", "descriptors"}

func (k Kind) String() string { return names[k] }

// Amounts is how much of each kind.
type Amounts [Kinds]int64

// needs are the mappings and descriptors that one object of each kind takes at most. A completion queue maps
// a second ring while its program resizes it.
var needs = [Limited]Amounts{
	Sessions:  {Mappings: 1, Descriptors: 3},
	MRs:       {Mappings: 1},
	CQs:       {Mappings: 2, Descriptors: 1},
	SRQs:      {Mappings: 1},
	QPs:       {Mappings: 1, Descriptors: 1},
	Listeners: {Descriptors: 2},
}

// Needs returns a with the most mappings and descriptors that its objects can take.
func (a Amounts) Needs() Amounts {
	for k := range Limited {
		for _, of := range []Kind{Mappings, Descriptors} {
			a[of] += min(a[k], 1<<40) * needs[k][of] // no overflow
		}
	}
	return a
}

// MaxMappings bounds the mappings of all users together: five eighths of what the kernel gives a process
// (vm.max_map_count). Beyond what it gives the heap of the daemon cannot grow any more, and the Go runtime ends it; a
// dozen users within their limits could have that.
const MaxMappings = 40 << 10

// What all users share is divided so that nobody can take it from the others.
const (
	// reserve is the part that only users with less than a basic share may take: 1/reserve of the whole.
	reserve = 4
	// basic is the share that each user may have of the reserve: 1/basic of the whole.
	basic = 256
)

// Share returns the most that one user may have, in the unit of bound. All users together may have bound, and the
// others have inUse of it. The share is half of what they leave of the unreserved part, and a basic share in any case.
// So the first basic/reserve newcomers find room whatever others within their limits have.
func Share(bound, inUse int64) int64 {
	half := (bound - bound/reserve - inUse + 1) / 2
	return max(0, min(max(half, bound/basic, 1), bound-inUse))
}

// TenantShare returns the most that each of n tenants may be promised where all together may have bound: a
// quarter of the whole is left for users outside of tenants.
func TenantShare(bound int64, n int) int64 { return (bound - bound/reserve) / int64(n) }

// What things cost the daemon that have no size of their own, in bytes of DaemonMemory.
const (
	// SessionMemory is a program: its socket's goroutine and pump, tables, a request of the longest kind.
	SessionMemory = 128 << 10
	// PendingMemory is a request that waits, with its goroutine and arguments.
	PendingMemory = 16 << 10
	// ObjectMemory is the least of a region, domain, queue, queue pair or listener: records on each worker, goroutines.
	ObjectMemory = 4 << 10
)

// OperatorSessions are the programs at the operator's socket at a time; none of the shares above bounds them.
// RootSessions is the number of root's programs that the socket for all users admits after others have filled it
// (daemon.clients).
const (
	OperatorSessions = 16
	RootSessions     = 8
)

// MaxTenants bounds the control sockets, because each costs a descriptor, a goroutine and an entry in snapshots and
// metrics.
const MaxTenants = 1024

// GarbagePercent bounds what the heap holds beyond what lives, as GOGC does. Otherwise a program that makes and closes
// objects all the time would have the daemon hold twice what DaemonMemory allows it. The data path allocates
// nothing, so that this costs the making of objects alone.
const GarbagePercent = 10

// MaxPendingArgs bounds the arguments of a request that waits, which are kept meanwhile.
const MaxPendingArgs = 4 << 10

// Bounds of what users cost beside the limits.
const (
	// snapshotEvery and snapshotShare bound the snapshots for the programs of a user: one at most every snapshotEvery,
	// for at most 1/snapshotShare of the time. Each costs a user's queue pairs some 50 us of a processor and 2 KiB
	// each.
	snapshotEvery = 100 * time.Millisecond
	snapshotShare = 10
	// UserIdle is how long the account of a user stays that holds nothing, for its rates and for the operator to
	// see what was refused; MaxIdleUsers bounds them, for users may be many (subordinate uids, services).
	UserIdle     = tick.Minute
	MaxIdleUsers = 256
)

// What remote addresses may have.
var (
	// DefaultPeer is for an IPv4 address or an IPv6 /64. HalfOpen stops a flood of SYNs from filling
	// backlogs. More are answered with cookies. Startup stops connections that say nothing after their
	// handshake, which cost a session each until the start-up times out. Connections stops one peer from
	// filling the table of a worker.
	DefaultPeer = PeerLimits{HalfOpen: 64, Startup: 1024, Connections: 8192}
	// DefaultNetwork is for an IPv4 /24 or an IPv6 /48, which one owner can fill with peers. Half of a
	// backlog and of a worker's table are left for others.
	DefaultNetwork = PeerLimits{HalfOpen: 128, Startup: 2048, Connections: 32768}
)

// Bounds of the accounts themselves, because a peer with many addresses must not fill the memory, nor lock out those
// who have none counted yet.
const (
	// MaxPeers and MaxNetworks bound the accounts of peers and of networks. A peer without an account
	// is charged to its network's; a network without one is charged to one account for all others.
	MaxPeers    = 16384
	MaxNetworks = 8192
	// MaxPeersOfNetwork is the share of one network in MaxPeers.
	MaxPeersOfNetwork = 256
	// PeerIdle is how long an account stays that has nothing, for its rate and for the operator to see who was refused.
	PeerIdle = tick.Minute
	// MaxPeersShown bounds the accounts in a snapshot.
	MaxPeersShown = 1024
)
