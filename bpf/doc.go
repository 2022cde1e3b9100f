// Package bpf steers the engine's TCP segments to its AF_XDP sockets with an XDP program, and leaves every
// other frame to the host's kernel.
//
// A [Steering] is one loaded program with its maps. It serves one interface: sockets are named by receive
// queue alone. It is attached through a bpf_link and pins nothing, so that when the process ends, however it
// ends, the kernel detaches the program and frees the maps.
//
// A segment is claimed by an exact flow, else by a listener for its local address and port, else by a
// listener for any address and that port, if the address is one of this host's. Fragments follow their first
// fragment, ICMP errors follow the segment that they quote. What comes to a listener has
// limits, and a SYN meets them before the flows. A claimed frame goes to the socket of the queue on which it
// arrived; no other socket can take it, so that on a queue without one it is dropped. A NIC that spreads
// traffic by ports hands fragments and ICMP errors to another queue than their flow's: the workers have to
// pass them on.
//
// steer.c says at its top what the kernel does not see while the program is attached.
package bpf
