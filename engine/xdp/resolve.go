package xdp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"xwarp/engine/host/neigh"
	"xwarp/engine/internal/core"
)

// hopWaiters holds the channels of the calls of Resolve that wait for a next hop, by destination.
type hopWaiters struct {
	mu sync.Mutex
	of map[netip.Addr]map[chan neigh.Hop]bool
}

func (w *hopWaiters) add(dst netip.Addr) chan neigh.Hop {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of == nil {
		w.of = map[netip.Addr]map[chan neigh.Hop]bool{}
	}
	if w.of[dst] == nil {
		w.of[dst] = map[chan neigh.Hop]bool{}
	}
	c := make(chan neigh.Hop, 1)
	w.of[dst][c] = true
	return c
}

func (w *hopWaiters) remove(dst netip.Addr, c chan neigh.Hop) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if delete(w.of[dst], c); len(w.of[dst]) == 0 {
		delete(w.of, dst)
	}
}

// post sends h to the calls that wait for the next hop to h.Dst, except those that have not read their previous answer.
func (w *hopWaiters) post(h neigh.Hop) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.of[h.Dst] {
		select {
		case c <- h:
		default:
		}
	}
}

// noRoute adds EHOSTUNREACH to a routing error that has no errno.
func noRoute(err error) error {
	if n := syscall.Errno(0); err == nil || errors.As(err, &n) {
		return err
	}
	return fmt.Errorf("%w: %w", syscall.EHOSTUNREACH, err)
}

// resolvePause is the interval between requests for a next hop after the kernel has given up the resolution.
const resolvePause = time.Second

// Resolve implements core's driver. While the next hop does not respond, it requests it again, until ctx is done. It
// returns any other error at once. For an address of this host it returns nil at once.
func (x *driver) Resolve(ctx context.Context, dst netip.Addr) error {
	dst = dst.Unmap().WithZone("")
	if x.isLocal(dst) {
		return nil
	}
	answers := x.waiters.add(dst)
	defer x.waiters.remove(dst, answers)
	hops, at := x.hops.forWorker(), core.FromNetip(dst)
	defer hops.Forget(at)
	var silent *neigh.UnreachableError
	for {
		hops.Request(at)
		select {
		case h := <-answers:
			if h.Err == nil || !errors.As(h.Err, &silent) {
				return noRoute(h.Err)
			}
		case <-ctx.Done():
			if silent != nil {
				return fmt.Errorf("%w; %w", context.Cause(ctx), silent)
			}
			return fmt.Errorf("next hop towards %v: %w", dst, context.Cause(ctx))
		}
		select {
		case <-time.After(resolvePause):
		case <-ctx.Done():
		}
	}
}
