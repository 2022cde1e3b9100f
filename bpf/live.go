package bpf

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// LiveMemory is the memory that one worker shares with the runs of the program over live frames (live.h). It is valid
// until [Steering.Close].
type LiveMemory struct {
	Program int    // descriptor of the program
	Worker  uint32 // number of the worker
	Slots   []byte // this worker's, LiveSlotSize bytes each, which begin with the frame's length
	First   uint32 // number of Slots' first slot, among those of all workers
	State   []byte // this worker's: number of the next slot, number of the slot after its last one
}

// LiveSlotSize is the size in bytes of one slot of the memory that the program and a worker share.
const LiveSlotSize = int(unsafe.Sizeof(steerLiveSlot{}))

// live is the mapped memory of all workers.
type live struct {
	mu            sync.Mutex
	slots, states []byte
}

// Live prepares live frames through the interface ifindex of the calling thread's network namespace, and returns the
// memory of a worker. The program must be loaded with Options.LiveWorkers. While the program is not attached, each run
// costs the kernel an RCU grace period.
func (s *Steering) Live(ifindex, worker int) (LiveMemory, error) {
	if err := s.lockOpen(); err != nil {
		return LiveMemory{}, err
	}
	defer s.life.RUnlock()
	workers := s.LiveWorkers()
	if worker < 0 || worker >= workers {
		return LiveMemory{}, fmt.Errorf("bpf: live frames: worker %d is not within 0 to %d: "+
			"raise Options.LiveWorkers", worker, workers-1)
	}
	if err := s.objs.LiveDevice.Update(uint32(0), uint32(ifindex), ebpf.UpdateAny); err != nil {
		return LiveMemory{}, fmt.Errorf("bpf: live frames to interface %d: %w", ifindex, err)
	}
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	for _, m := range []struct {
		mem *[]byte
		of  *ebpf.Map
	}{{&s.live.slots, s.objs.LiveSlots}, {&s.live.states, s.objs.LiveStates}} {
		if *m.mem != nil {
			continue
		}
		n := int(m.of.ValueSize() * m.of.MaxEntries())
		n = (n + os.Getpagesize() - 1) &^ (os.Getpagesize() - 1)
		mem, err := unix.Mmap(m.of.FD(), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return LiveMemory{}, fmt.Errorf("bpf: %d bytes for live frames: %w", n, err)
		}
		*m.mem = mem
	}
	each := int(s.objs.LiveSlots.MaxEntries()) / workers
	const stateSize = int(unsafe.Sizeof(steerLiveState{}))
	first := worker * each
	return LiveMemory{
		Program: s.objs.XwarpSteer.FD(), Worker: uint32(worker), First: uint32(first),
		Slots: s.live.slots[first*LiveSlotSize:][:each*LiveSlotSize],
		State: s.live.states[worker*stateSize:][:stateSize],
	}, nil
}

// LiveWorkers returns the number of workers that can transmit live frames: Options.LiveWorkers.
func (s *Steering) LiveWorkers() int {
	if s.objs.LiveSlots.MaxEntries() < DefaultLiveSlots {
		return 0
	}
	return int(s.objs.LiveStates.MaxEntries())
}

func (l *live) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, m := range []*[]byte{&l.slots, &l.states} {
		if *m != nil {
			errs = append(errs, unix.Munmap(*m))
			*m = nil
		}
	}
	return errors.Join(errs...)
}
