package doctor

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"xwarp/bench/topo"
	"xwarp/bpf"
	"xwarp/ring"
)

// trial is the result of attaching an XDP program and binding a socket: on the interface if that is safe, otherwise on
// a temporary veth pair.
type trial struct {
	done            bool
	where           string
	native, generic error  // of attaching in this XDP mode; nil: it works
	bindCopy, zero  error  // of binding in copy and in zero-copy mode; nil: it works
	fault           error  // known fault of the zero-copy mode that was bound
	skipped         string // why the trial did not use the interface
}

// try returns the result of the trial, which the first call runs.
func (e *env) try() *trial {
	t := &e.trial
	if t.done {
		return t
	}
	t.done = true
	if e.nic != nil {
		if t.skipped = unsafeToTry(e.nic); t.skipped == "" {
			t.where = e.name()
			t.exchangeFrames(e.nic.Attrs().Index, e.opt.Queues[0])
			return t
		}
	}
	t.where = "a temporary veth pair"
	if err := inScratch(func(index int) { t.exchangeFrames(index, 0) }); err != nil {
		t.native, t.generic, t.bindCopy, t.zero = err, err, err, err
	}
	return t
}

// unsafeToTry returns why attaching to nic is unsafe, or "": many drivers reset the link when a program is attached.
func unsafeToTry(nic netlink.Link) string {
	if x := nic.Attrs().Xdp; x != nil && x.Attached {
		return "it has an XDP program"
	}
	if nic.Type() == "veth" {
		return ""
	}
	if addrs, err := netlink.AddrList(nic, netlink.FAMILY_ALL); err != nil || len(addrs) > 0 {
		return "it has addresses, and attaching resets the link with many drivers"
	}
	return ""
}

// inScratch calls f in a temporary network namespace, with the index of a veth.
func inScratch(f func(index int)) error {
	ns, err := topo.NewNamespace()
	if err != nil {
		return fmt.Errorf("network namespace for the trial: %w", err)
	}
	return errors.Join(ns.Do(func() error {
		a := netlink.NewLinkAttrs()
		a.Name = "trial0"
		v := netlink.NewVeth(a)
		v.PeerName = "trial1"
		if err := netlink.LinkAdd(v); err != nil {
			return fmt.Errorf("veth pair for the trial: %w", err)
		}
		if err := netlink.LinkSetUp(v); err != nil {
			return err
		}
		f(v.Attrs().Index)
		return netlink.LinkDel(v)
	}), ns.Close())
}

func (t *trial) exchangeFrames(index, queue int) {
	t.native = tryAttach(index, bpf.ModeNative)
	t.generic = tryAttach(index, bpf.ModeGeneric)
	_, t.bindCopy = tryBind(index, queue, ring.ModeCopy)
	t.fault, t.zero = tryBind(index, queue, ring.ModeZeroCopy)
}

func tryAttach(index int, mode bpf.Mode) error {
	s, err := bpf.Load(bpf.Options{MaxFlows: 1, MaxListeners: 1, MaxFragments: 1, MaxQueues: 1})
	if err != nil {
		return err
	}
	_, err = s.Attach(index, mode)
	return errors.Join(err, s.Close())
}

func tryBind(index, queue int, mode ring.Mode) (fault, err error) {
	s, err := ring.Open(ring.Config{Ifindex: index, Queue: uint32(queue), RxFrames: 64, TxSlots: 64,
		Mode: mode})
	if err != nil {
		return nil, err
	}
	return s.Info().Fault, s.Close()
}

var nativeCheck = check{
	name: "xdp-native",
	why:  "native XDP runs in the driver; generic XDP is slower and sees GRO super-frames",
	look: func(e *env) finding {
		t := e.try()
		switch {
		case t.native == nil:
			return fine("attached to and detached from %s", t.where)
		case t.generic == nil:
			return warn("not available on %s: %v", t.where, t.native).
				advise("set xdp_mode = \"generic\" in /etc/xwarp/xwarp.toml")
		}
		if os.Geteuid() != 0 {
			return fail("not tested on %s: %v", t.where, t.native).advise("sudo xwarp doctor")
		}
		return fail("not available on %s: %v", t.where, t.native).advise("dmesg | tail")
	},
}

var genericCheck = check{
	name: "xdp-generic",
	why:  "fallback for drivers without native XDP",
	look: func(e *env) finding {
		t := e.try()
		if t.generic != nil {
			return warn("not available on %s: %v", t.where, t.generic)
		}
		return fine("attached to and detached from %s", t.where)
	},
}

var copyCheck = check{
	name: "af_xdp-copy",
	why:  "AF_XDP sockets carry all frames; copy mode works with every driver",
	look: func(e *env) finding {
		t := e.try()
		if t.bindCopy != nil {
			f := fail("bind on %s: %v", t.where, t.bindCopy).
				advise("set transport = \"kernel\" in /etc/xwarp/xwarp.toml: it needs no AF_XDP")
			if errors.Is(t.bindCopy, unix.EBUSY) {
				f.remedy = "stop the program that uses the queue, or serve another: xwarp doctor " +
					"--queues N"
			}
			return f
		}
		return fine("bound to %s", t.where)
	},
}
