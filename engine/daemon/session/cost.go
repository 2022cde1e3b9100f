package session

import (
	"os"

	"xwarp/engine/budget"
	"xwarp/engine/daemon/control"
	"xwarp/engine/verbs"
)

// Costs of objects, charged to their user. The bytes are the maximum that the daemon allocates, whatever a program does
// with the object. The pages of rings and regions are charged to the program by the kernel.

var (
	// Cost is the cost of a session. It includes the descriptors of the socket and of the doorbell's eventfd, and one
	// passed with a request.
	Cost = budget.Amounts{budget.Sessions: 1, budget.DaemonMemory: budget.SessionMemory,
		budget.Descriptors: 3}
	pdCost      = budget.Amounts{budget.PDs: 1, budget.DaemonMemory: budget.ObjectMemory}
	mwCost      = budget.Amounts{budget.MRs: 1, budget.DaemonMemory: budget.ObjectMemory}
	pendingCost = budget.Amounts{budget.DaemonMemory: budget.PendingMemory}
	// connectCost is the cost of an attempt to connect. The queue pair's cost includes the connection.
	connectCost = budget.Amounts{budget.Connects: 1}
)

// roundUpToPages returns n rounded up to whole pages, in bytes.
func roundUpToPages(n uint64) int64 {
	return int64(control.WholePages(n, uint64(os.Getpagesize())))
}

// pageTableBytes returns the size of the page tables for a mapping of n bytes: 8 bytes per page of 4 KiB, in whole
// pages.
func pageTableBytes(n uint64) int64 { return roundUpToPages(uint64(roundUpToPages(n)) / 512) }

func mrCost(length uint64) budget.Amounts {
	return budget.Amounts{budget.MRs: 1, budget.Memory: roundUpToPages(length),
		budget.DaemonMemory: budget.ObjectMemory + pageTableBytes(length)}
}

func cqCost(g control.Geometry) budget.Amounts {
	cost := ringCost(g)
	cost[budget.CQs], cost[budget.Descriptors] = 1, 1 // the descriptor is that of the channel
	cost[budget.DaemonMemory] += budget.ObjectMemory
	return cost
}

// ringCost is the cost of a completion queue's ring.
func ringCost(g control.Geometry) budget.Amounts {
	return budget.Amounts{
		budget.Completions: int64(g.Slots), budget.DaemonMemory: pageTableBytes(uint64(g.Len())),
	}
}

// takenBytes is the memory that a queue pair with a shared receive queue needs per message in progress: an entry of 4
// bytes, in a ring whose length is rounded up to a power of two, so at most 8 bytes.
const takenBytes = 8

// qpCost is the cost of a queue pair and its connection. The descriptor is that of a socket or of a reserved port.
func (s *Session) qpCost(c *verbs.QPConfig) budget.Amounts {
	_, _, byteCount := ringLayout(c)
	own, taken := *c, 0
	if c.SRQ != nil { // the cost of the shared receive queue includes the receives
		own.RecvDepth, taken = 1, c.RecvDepth
	}
	footprint := takenBytes*taken + s.dev.Core.Footprint(&own)
	return budget.Amounts{
		budget.QPs: 1, budget.Descriptors: 1,
		budget.WorkRequests: int64(own.SendDepth + own.RecvDepth),
		budget.DaemonMemory: budget.ObjectMemory + pageTableBytes(uint64(byteCount)) +
			int64(footprint),
	}
}

func (s *Session) srqCost(c *verbs.SRQConfig, g control.Geometry) budget.Amounts {
	return budget.Amounts{
		budget.SRQs: 1, budget.WorkRequests: int64(c.Depth),
		budget.DaemonMemory: budget.ObjectMemory + pageTableBytes(uint64(g.Len())) +
			int64(s.dev.Core.SRQFootprint(c)),
	}
}

// listenerCost is the cost of a listener with a full backlog.
func (s *Session) listenerCost(backlog int) budget.Amounts {
	return budget.Amounts{budget.Listeners: 1, budget.Descriptors: listenerFiles,
		budget.DaemonMemory: budget.ObjectMemory +
			int64(backlog)*int64(s.dev.Core.ConnFootprint())}
}

// listenerFiles is the number of descriptors that reserve a port, see package ports.
const listenerFiles = 2

// requestCost is the cost of a connection request that waits for the program's answer.
func (s *Session) requestCost() budget.Amounts {
	return budget.Amounts{budget.DaemonMemory: budget.ObjectMemory + int64(
		s.dev.Core.ConnFootprint())}
}
