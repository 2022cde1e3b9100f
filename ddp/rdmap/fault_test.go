package rdmap

import (
	"strings"
	"testing"
	"unsafe"

	"xwarp/ddp"
)

// lostMemory is the value of a panic for an access to unmapped memory.
type lostMemory uintptr

func (lostMemory) Error() string   { return "fault" }
func (m lostMemory) Addr() uintptr { return uintptr(m) }

// lose reports to h's queue pair that b[off] cannot be accessed, as its worker does.
func (h *host) lose(b []byte, off int) {
	h.t.Helper()
	e := h.qp.RecoverMemoryFault(lostMemory(uintptr(unsafe.Pointer(&b[off]))))
	if e == nil {
		h.t.Fatal("no region has the memory")
	}
	if !strings.Contains(e.Error(), "cannot be accessed") || ddp.MakeCause(e.Layer, e.Type,
		e.Code) != CauseCatastrophic {
		h.t.Errorf("%v", e)
	}
	h.qp.Fail(e)
}

// TestMemoryFaultFailsItsWork: a work request with memory that cannot be accessed completes with LOC_PROT_ERR, whatever
// its kind. Other work does not. The STag of the region is revoked, that of another region stays valid.
func TestMemoryFaultFailsItsWork(t *testing.T) {
	mem, other := make([]byte, 100), make([]byte, 100)
	for _, c := range []struct {
		name string
		post func(h *host, m *ddp.MR)
	}{
		{"Send", func(h *host, m *ddp.MR) {
			h.send(SendWR{ID: 7, Op: WRSend, SGL: []SGE{sge(m, 0, 100)}})
		}},
		{"Read", func(h *host, m *ddp.MR) {
			h.send(SendWR{ID: 7, Op: WRRead, SGL: []SGE{sge(m, 0, 100)}, RemoteSTag: 5})
		}},
		{"Receive", func(h *host, m *ddp.MR) { h.recv(7, sge(m, 0, 100)) }},
	} {
		for _, left := range []bool{false, true} { // whether the work is under way
			h := newHost(t, 1).open(nil, Params{Version: ddp.IETF, IRD: 4, ORD: 4})
			m := h.register(mem, ddp.Attr{Access: ddp.LocalWrite | ddp.RemoteWrite})
			n := h.register(other, ddp.Attr{Access: ddp.LocalWrite | ddp.RemoteWrite})
			c.post(h, m)
			h.send(SendWR{ID: 8, Op: WRSend, SGL: []SGE{sge(n, 0, 10)}})
			if left {
				h.pullAll(1500)
			}
			h.lose(mem, 99)
			got := map[uint64]Status{}
			for _, w := range h.take() {
				got[w.ID] = w.Status
			}
			if got[7] != LocProtErr || got[8] == LocProtErr {
				t.Errorf("%s, under way %v: completed %v", c.name, left, got)
			}
			if h.table.Lookup(m.STag()) != nil || h.table.Lookup(n.STag()) == nil {
				t.Errorf("%s: the STags: %v, %v", c.name, h.table.Lookup(m.STag()),
					h.table.Lookup(n.STag()))
			}
		}
	}
}

// TestOtherPanicsAreNotMemoryFaults: a panic about something else, or about memory that is not registered, is not the
// error of a stream.
func TestOtherPanicsAreNotMemoryFaults(t *testing.T) {
	h := newHost(t, 1).open(nil, Params{Version: ddp.IETF})
	m := h.region(100, ddp.Attr{})
	b := h.held(m)
	end := uintptr(unsafe.Pointer(&b[99])) + 1
	for _, v := range []any{"index out of range", lostMemory(end)} {
		if e := h.qp.RecoverMemoryFault(v); e != nil {
			t.Errorf("%v: %v", v, e)
		}
	}
	if h.table.Lookup(m.STag()) == nil {
		t.Error("the region is gone")
	}
}

// TestUnsentTerminateIsSentAgain: a Terminate that never left is sent, and counted once.
func TestUnsentTerminateIsSentAgain(t *testing.T) {
	h := newHost(t, 1).open(nil, Params{Version: ddp.IETF})
	h.qp.UnfreezeTerminate()
	if f := h.pull(1500); f != nil {
		t.Fatalf("%+v, and there was nothing to take back", f)
	}
	h.qp.Fail(CauseProtSTag.Errorf("test"))
	for range 3 {
		if f := h.pull(1500); f == nil || opcodeOf(f.b[1]) != OpTerminate ||
			h.qp.Counters.TerminatesOut != 1 {
			t.Fatalf("%+v, %d Terminates counted", f, h.qp.Counters.TerminatesOut)
		}
		if f := h.pull(1500); f != nil {
			t.Fatalf("a second %+v", f)
		}
		h.qp.UnfreezeTerminate()
	}
}
