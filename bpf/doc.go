// Package bpf steers the engine's TCP segments to its AF_XDP sockets with an XDP program, and leaves every
// other frame to the host's kernel.
//
// A [Steering] is one loaded program with its maps. It serves one interface, because sockets are identified by the
// receive queue alone. It is attached through a bpf_link and pins nothing, so the kernel detaches the program and frees
// the maps when the process ends in any way.
//
// A segment is claimed by a flow, which is an exact four-tuple, else by a listener for its local address and port, else
// by a listener for any address and that port if the address is one of this host's. Fragments go where their first
// fragment went, ICMP errors where the quoted segment would go. Segments to a listener are rate limited; a SYN meets
// the limit before the lookup of its flow. A claimed frame goes to the socket of the queue on which it arrived. No
// other socket can take it, so it is dropped when its queue has no socket. A NIC that distributes traffic by ports
// delivers fragments and ICMP errors to other queues than the segments of the flow: the workers hand such frames over.
//
// The head of steer.c lists the traffic that the kernel does not see while the program is attached.
package bpf
