package daemon_test

import (
	"fmt"
	"os"
	"testing"

	"xwarp/engine/daemon/control"
)

// TestResizeCQ: a program resizes a completion queue, with valid and invalid requests. Until a resize is completed,
// limits.completions counts both rings.
func TestResizeCQ(t *testing.T) {
	d, socket := kernel(t, "[limits]\ncompletions = 96\n")
	r := dialRaw(t, socket)
	control.CloseAll(r.hello())
	var cq control.CreateCQResult
	first := r.must(&cq, control.OpCreateCQ, `{"depth":32}`)
	mapping(t, first[0])
	control.CloseAll(first)
	resize := func(depth string) (ring control.ResizeCQResult, mem []byte) {
		t.Helper()
		files := r.must(&ring, control.OpResizeCQ, fmt.Sprintf(`{"handle":%d,"depth":%s}`, cq.Handle,
			depth))
		mem = mapping(t, files[0])
		control.CloseAll(files)
		return ring, mem
	}
	use := fmt.Sprintf(`{"handle":%d}`, cq.Handle)
	refused := func(args string, want control.Code) {
		t.Helper()
		if reply, _ := r.call(control.OpResizeCQ, args); reply.Error == nil ||
			reply.Error.Code != want {
			t.Errorf("%s: %+v", args, reply)
		}
	}
	completions := func() int64 { return used(d, uint32(os.Getuid()), "completions") }
	refused(use, control.CodeInvalid)
	refused(fmt.Sprintf(`{"handle":%d,"depth":-1}`, cq.Handle), control.CodeInvalid)
	refused(fmt.Sprintf(`{"handle":%d,"depth":1000000000}`, cq.Handle), control.CodeInvalid)
	refused(fmt.Sprintf(`{"handle":%d,"depth":128}`, cq.Handle), control.CodeQuota)
	refused(`{"handle":99,"depth":16}`, control.CodeUnknown)
	resize("16")
	ring, _ := resize("64") // it replaces the resize that is not completed
	if ring.Ring.Slots != 64 || completions() != 96 {
		t.Errorf("%d slots, %d completions are used", ring.Ring.Slots, completions())
	}
	r.must(nil, control.OpResizeCQ, use)
	refused(use, control.CodeInvalid)
	if v := d.Snapshot(); completions() != 64 || v.CQs[0].Depth != 64 {
		t.Errorf("%d completions are used, depth %d", completions(), v.CQs[0].Depth)
	}
	resize("32") // a resize that is never completed
	r.must(nil, control.OpDestroyCQ, use)
	if completions() != 0 {
		t.Errorf("%d completions are used", completions())
	}
}

// TestResizeCQWithoutPages: a program that completes a resize without having touched the pages of the new ring loses
// its session. The daemon allocates no pages.
func TestResizeCQWithoutPages(t *testing.T) {
	d, socket := kernel(t, "")
	r := dialRaw(t, socket)
	control.CloseAll(r.hello())
	var cq control.CreateCQResult
	files := r.must(&cq, control.OpCreateCQ, `{"depth":32}`)
	mapping(t, files[0])
	control.CloseAll(files)
	files = r.must(nil, control.OpResizeCQ, fmt.Sprintf(`{"handle":%d,"depth":64}`, cq.Handle))
	defer control.CloseAll(files)
	if n := present(t, files[0]); n != 0 {
		t.Errorf("the daemon allocated %d bytes of pages", n)
	}
	r.send(control.OpResizeCQ, fmt.Sprintf(`{"handle":%d}`, cq.Handle))
	if _, ok := eventually(func() bool {
		return len(d.Snapshot().Sessions) == 0
	}); !ok {
		t.Errorf("the session did not end: %+v", d.Snapshot().Sessions)
	}
	if n := present(t, files[0]); n != 0 {
		t.Errorf("the daemon allocated %d bytes of pages", n)
	}
}
