// Package transfer moves files over a queue pair: a server has one region of memory, clients put content into it and get
// it back. Control messages are Sends; the octets move by RDMA Write (put) and RDMA Read (get), which the client alone
// drives.
//
//	client                              server
//	Put{length | Unknown}    ────────►  waits for its turn, makes a staging region
//	                         ◄────────  Region{STag, TO, length}
//	RDMA Writes              ════════►
//	Done{length, SHA-256}    ────────►  takes the STag away, compares, copies to the region
//	                         ◄────────  Done{length, SHA-256}
//
//	Get{length | 0}          ────────►  locks the content against puts
//	                         ◄────────  Region{STag, TO, length, SHA-256}
//	RDMA Reads               ════════►
//	Done{length, SHA-256}    ────────►  unlocks
//
// Either side may send Error instead of what is due, and sends Beat every few seconds, so that a peer that is gone or
// stopped is told from one that is slow.
//
// # Several clients
//
// Gets run side by side. Puts are taken one at a time, the others wait for their turn in order of arrival. What a put
// wrote becomes the content at once and whole, when its SHA-256 is right and no get is reading; a put that fails at any point
// leaves the content as it was. An STag is valid for one client and for one transfer.
package transfer
