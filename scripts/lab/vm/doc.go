// Package vm boots virtual machines that hold Linux's soft-iWARP driver (siw), beside a network namespace for
// the program under test.
//
//	  peer namespace                 hub namespace                    virtual machine
//	┌─────────────────┐        ┌──────────────────────┐            ┌──────────────────┐
//	│ 10.77.0.1/24    │  veth  │        bridge        │    tap     │ 10.77.0.10+n/24  │
//	│ fd77::1/64   xw0├────────┤hub0              tapN├────────────┤eth0 fd77::10+n/64│
//	└─────────────────┘        └──────────────────────┘            │siw0 on eth0      │
//	                                                               └──────────────────┘
//
// The program under test owns xw0, with a native XDP program if it likes: the bridge is in a namespace of its
// own, and every offload that would show a packet which never was on a wire is off. Both namespaces have no
// name; they and all that is in them vanish with the process that made them, however it ends, and so do the
// machines and the captures.
//
// What the machines boot from is made by scripts/lab/build.sh; a test begins with Need.
package vm
