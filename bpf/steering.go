// Package bpf steers the engine's TCP segments to its AF_XDP sockets with an XDP program, and leaves every
// other frame to the host's kernel.
//
// A [Steering] is one loaded program with its maps. It serves one interface and its VLANs, because sockets are
// identified by the receive queue alone. [Steering.Twin] serves another member of a bond. Claims and settings belong to
// a [VLAN], or to frames without one. The program is attached through a bpf_link and pins nothing, so the kernel
// detaches it and frees the maps when the process ends in any way. If the interface has libxdp's dispatcher, the
// program joins it (package dispatcher). There the program is pinned, and a second process removes it when this one
// ends.
//
// A segment is claimed by a flow, which is an exact four-tuple. Without a flow it is claimed by a listener for its
// local address and port, or by a listener for any address and that port if the address is one of this host. Fragments
// follow their first fragment, ICMP errors the quoted segment. Segments to a listener are rate limited; the limit
// applies to a SYN before the lookup of its flow. A claimed frame goes to the socket of the queue on which it arrived.
// No other socket can receive it, so it is dropped if its queue has no socket. A NIC that distributes traffic by ports
// delivers fragments and ICMP errors to other queues than the segments of the flow: the workers pass such frames on.
//
// The kernel resets the connections of frames that it receives, such as those on a new member of a bond that has no
// program yet. [Steering.HoldResets] drops these resets with a second program, on what an interface sends.
//
// The comment at the top of steer.c lists the traffic that the kernel does not see while the program is attached.
package bpf

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"xwarp/bpf/dispatcher"
)

// programName is the name of the program in the kernel.
const programName = "xwarp_steer"

// Options sizes the maps of a [Steering]. Zero means the default of limits.go, such as DefaultMaxFlows.
type Options struct {
	MaxFlows     int // exact flows at a time
	MaxListeners int // listening addresses at a time
	MaxSAs       int // IPsec SAs at a time
	MaxFragments int // datagrams at a time whose later fragments are expected
	MaxPrefixes  int // prefixes in each of three sets: addresses of this host, peers, and protected addresses
	MaxQueues    int // receive queues that can have a socket: numbers 0 to MaxQueues-1
}

// Steering is a loaded XDP program with its maps. Its methods may be called by several goroutines at once.
type Steering struct {
	*VLAN  // claims and settings for frames without a VLAN; a twin has the VLAN of the first program
	opts   Options
	life   sync.RWMutex // held for reading while objs are used; guards closed
	closed bool
	objs   steerObjects

	// guarded by attaching, which is held while the kernel attaches the program; that takes long if the driver restarts
	// its queues
	attaching sync.Mutex
	link      link.Link              // nil when not attached, or in a dispatcher
	member    *dispatcher.Membership // nil when not in a dispatcher
	att       Attachment             // the latest one; zero after Detach
	resets    link.Link              // of HoldResets, or nil

	mu         sync.Mutex // guards the claims and settings of all VLANs
	generation uint32     // latest generation in the settings of any VLAN; see VLAN.bumpGeneration
}

// Load loads the program and its maps into the kernel without attaching the program. It needs CAP_BPF, CAP_NET_ADMIN
// and CAP_PERFMON. From Linux 5.19 on a daemon may then drop them: only Twin, and Attach to an interface with a
// dispatcher, need capabilities.
func Load(opts Options) (*Steering, error) {
	spec, err := opts.spec()
	if err != nil {
		return nil, err
	}
	s := &Steering{opts: opts}
	if err := spec.LoadAndAssign(&s.objs, nil); err != nil {
		return nil, fmt.Errorf("bpf: load: %w", loadHint(err, Release()))
	}
	if s.VLAN, err = s.openVLAN(0); err != nil {
		return nil, errors.Join(fmt.Errorf("bpf: load: %w", err), s.Close())
	}
	return s, nil
}

// Twin loads a second program, for another member of the same bond. The result t shares the claims, the settings and
// the counters of s. Its sockets and the rate limits of its queues are its own. Twin needs the capabilities of [Load].
// Closing t does not close s; t must be closed first.
func (s *Steering) Twin() (t *Steering, err error) {
	err = s.whileOpen(func() error {
		spec, err := s.opts.spec()
		if err != nil {
			return err
		}
		o := &s.objs
		t = &Steering{VLAN: s.VLAN, opts: s.opts}
		return spec.LoadAndAssign(&t.objs, &ebpf.CollectionOptions{
			MapReplacements: map[string]*ebpf.Map{
				steerMapAdmittedSyns: o.AdmittedSyns, steerMapCounters: o.Counters,
				steerMapFlows: o.Flows, steerMapFragments: o.Fragments,
				steerMapListenerCache: o.ListenerCache, steerMapListeners: o.Listeners,
				steerMapLocalPrefixes: o.LocalPrefixes, steerMapMustProtect: o.MustProtect,
				steerMapNoSocketDrops: o.NoSocketDrops, steerMapPeers: o.Peers,
				steerMapRecentSyns: o.RecentSyns, steerMapSas: o.Sas,
				steerMapSettings: o.Settings,
			}})
	}, "second program")
	if err != nil {
		return nil, err
	}
	return t, nil
}

// spec returns the program and its maps, with the map sizes of opts.
func (opts *Options) spec() (*ebpf.CollectionSpec, error) {
	spec, err := loadSteer()
	if err != nil {
		return nil, fmt.Errorf("bpf: embedded object: %w", err)
	}
	for _, m := range []struct {
		option string
		value  int
		def    int
		specs  []*ebpf.MapSpec
	}{
		{"MaxFlows", opts.MaxFlows, DefaultMaxFlows, []*ebpf.MapSpec{spec.Maps[steerMapFlows]}},
		{"MaxListeners", opts.MaxListeners, DefaultMaxListeners,
			[]*ebpf.MapSpec{spec.Maps[steerMapListeners]}},
		{"MaxSAs", opts.MaxSAs, DefaultMaxSAs, []*ebpf.MapSpec{spec.Maps[steerMapSas]}},
		{"MaxFragments", opts.MaxFragments, DefaultMaxFragments,
			[]*ebpf.MapSpec{spec.Maps[steerMapFragments]}},
		{"MaxPrefixes", opts.MaxPrefixes, DefaultMaxPrefixes,
			[]*ebpf.MapSpec{spec.Maps[steerMapLocalPrefixes], spec.Maps[steerMapPeers],
				spec.Maps[steerMapMustProtect]}},
		{"MaxQueues", opts.MaxQueues, DefaultMaxQueues, []*ebpf.MapSpec{spec.Maps[steerMapSockets],
			spec.Maps[steerMapNoSocketDrops], spec.Maps[steerMapListenerLimits]}},
	} {
		n := m.value
		if n == 0 {
			n = m.def
		}
		if n < 0 || n > maxEntries {
			return nil, fmt.Errorf("bpf: %s is %d: use 1 to %d, or 0 for the default of %d",
				m.option, n, maxEntries, m.def)
		}
		for _, s := range m.specs {
			s.MaxEntries = uint32(n)
		}
	}
	return spec, nil
}

// Close detaches the program and frees the program and its maps. It does not close the sockets. Afterwards methods that
// use the program or the maps return [ErrClosed].
func (s *Steering) Close() error {
	s.life.Lock()
	defer s.life.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return errors.Join(s.Detach(), s.objs.Close())
}

// lockOpen prevents Close until the caller calls s.life.RUnlock. It returns [ErrClosed], without the lock, after Close.
func (s *Steering) lockOpen() error {
	s.life.RLock()
	if s.closed {
		s.life.RUnlock()
		return ErrClosed
	}
	return nil
}

// whileOpen runs f while it prevents Close. The error of f gets the prefix of format and args.
func (s *Steering) whileOpen(f func() error, format string, args ...any) error {
	if err := s.lockOpen(); err != nil {
		return err
	}
	defer s.life.RUnlock()
	if err := f(); err != nil {
		return fmt.Errorf("bpf: %s: %w", fmt.Sprintf(format, args...), err)
	}
	return nil
}

// SetSocket redirects claimed frames of a receive queue to the AF_XDP socket fd, which replaces the previous socket of
// the queue. The socket should be bound to that queue of the attached interface, with XDP_USE_SG if frames may span
// several chunks: otherwise the kernel drops frames. The caller keeps ownership of fd.
func (s *Steering) SetSocket(queue, fd int) error {
	return s.onQueue("socket", queue, func() error {
		if fd < 0 {
			return fmt.Errorf("bad descriptor %d", fd)
		}
		err := s.objs.Sockets.Update(uint32(queue), uint32(fd), ebpf.UpdateAny)
		switch {
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOTSOCK):
			err = hint(err, fmt.Sprintf("descriptor %d is not an AF_XDP socket", fd))
		case errors.Is(err, unix.ENOBUFS):
			err = hint(err, fmt.Sprintf("the AF_XDP socket %d has no receive ring", fd))
		}
		return err
	})
}

// RemoveSocket removes the socket of a receive queue, whose claimed frames are then dropped. A queue without a socket
// is not an error: the kernel removes a socket when its last descriptor is closed.
func (s *Steering) RemoveSocket(queue int) error {
	return s.onQueue("socket", queue, func() error {
		err := s.objs.Sockets.Delete(uint32(queue))
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		return err
	})
}

// onQueue checks the number of a receive queue and runs f. what names the object of f in errors.
func (s *Steering) onQueue(what string, queue int, f func() error) error {
	return s.whileOpen(func() error {
		if limit := int(s.objs.Sockets.MaxEntries()); queue < 0 || queue >= limit {
			return fmt.Errorf("its number is not within 0 to %d: raise Options.MaxQueues", limit-1)
		}
		return f()
	}, "%s of queue %d", what, queue)
}

// Counters returns the number of frames by outcome since [Load], summed over the CPUs. It includes those of twins.
func (s *Steering) Counters() (c Counts, err error) {
	err = s.whileOpen(func() error {
		for o := range c {
			if c[o], err = sum(s.objs.Counters, uint32(o)); err != nil {
				return fmt.Errorf("%s: %w", Outcome(o), err)
			}
		}
		return nil
	}, "counters")
	return c, err
}

// NoSocketDrops returns the number of frames with the outcome [DropNoSocket] that arrived on a receive queue.
func (s *Steering) NoSocketDrops(queue int) (n uint64, err error) {
	err = s.onQueue("frames without a socket", queue, func() error {
		n, err = sum(s.objs.NoSocketDrops, uint32(queue))
		return err
	})
	return n, err
}

// sum adds up the values of all CPUs under key.
func sum(m *ebpf.Map, key uint32) (uint64, error) {
	var perCPU []uint64
	if err := m.Lookup(key, &perCPU); err != nil {
		return 0, err
	}
	var n uint64
	for _, v := range perCPU {
		n += v
	}
	return n, nil
}

// The generated files are committed, so building needs no clang. The same clang produces the same bytes.
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -go-package bpf -tags linux -target bpfel,bpfeb steer steer.c -- -Wall -Wextra -Werror -Wno-unused-function -mcpu=v3
