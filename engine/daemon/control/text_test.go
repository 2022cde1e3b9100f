package control

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"xwarp/ddp"
	"xwarp/engine/verbs"
	"xwarp/tcp"
)

// args maps each operation to its type of arguments, for the examples in PROTOCOL.md. Nil means no arguments.
var args = map[Op]func() any{
	OpHello: func() any {
		return &HelloArgs{}
	}, OpAllocPD: nil, OpFreePD: object, OpRegMR: func() any {
		return &RegMRArgs{}
	}, OpDeregMR: object,
	OpCreateCQ: func() any {
		return &CreateCQArgs{}
	}, OpDestroyCQ: object, OpCreateQP: func() any { return &CreateQPArgs{} }, OpDestroyQP: object,
	OpResizeCQ: func() any { return &ResizeCQArgs{} },
	OpAllocMW:  func() any { return &AllocMWArgs{} }, OpDeallocMW: object,
	OpModifyQP:  func() any { return &ModifyQPArgs{} },
	OpSetState:  func() any { return &SetStateArgs{} },
	OpCreateSRQ: func() any { return &CreateSRQArgs{} }, OpQuerySRQ: object, OpDestroySRQ: object,
	OpModifySRQ: func() any { return &ModifySRQArgs{} },
	OpResolve:   func() any { return &ResolveArgs{} },
	OpConnect: func() any {
		return &ConnectArgs{}
	}, OpDisconnect: object, OpQueryQP: object, OpListen: func() any { return &ListenArgs{} },
	OpCloseListener: object, OpGetRequest: object, OpAccept: func() any {
		return &AcceptArgs{}
	}, OpReject: func() any { return &AcceptArgs{} },
	OpCancel: func() any {
		return &CancelArgs{}
	}, OpState: nil, OpEvents: func() any { return &EventsArgs{} },
	OpNetlink: func() any { return &NetlinkArgs{} },
	OpFlush:   func() any { return &FlushArgs{} },
	OpCapture: func() any {
		return &CaptureArgs{}
	}, OpEndCapture: func() any { return &Object{} }, OpConfirm: nil, OpReload: nil,
}

func object() any { return &Object{} }

var results = map[Op]func() any{
	OpQueryGIDs: func() any { return &QueryGIDsResult{} },
	OpNetlink:   func() any { return &NetlinkResult{} },
	OpEvents:    func() any { return &EventsResult{} },
	OpHello: func() any {
		return &HelloResult{}
	}, OpAllocPD: object, OpRegMR: func() any {
		return &RegMRResult{}
	}, OpCreateCQ: func() any { return &CreateCQResult{} },
	OpResizeCQ:  func() any { return &ResizeCQResult{} },
	OpAllocMW:   func() any { return &AllocMWResult{} },
	OpCreateSRQ: func() any { return &CreateSRQResult{} },
	OpQuerySRQ:  func() any { return &QuerySRQResult{} },
	OpCreateQP: func() any {
		return &CreateQPResult{}
	}, OpListen: func() any {
		return &ListenResult{}
	}, OpGetRequest: func() any { return &RequestResult{} },
	OpCapture: func() any {
		return &Object{}
	}, OpEndCapture: func() any { return &CaptureResult{} },
	OpConfirm: func() any { return &ConfirmResult{} },
	OpReload:  func() any { return &ReloadResult{} },
}

func examples(t testing.TB) (list []string) {
	t.Helper()
	text, err := os.ReadFile("PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		if e, ok := strings.CutPrefix(line, "    {"); ok {
			list = append(list, "{"+e)
		}
	}
	return list
}

// TestText checks that this package reads and writes the examples of PROTOCOL.md, byte by byte, and that PROTOCOL.md
// has an example of each operation and names each error code.
func TestText(t *testing.T) {
	ops := map[uint64]Op{}
	seen := map[Op]bool{}
	again := func(line string, v any, make func() any, part json.RawMessage) {
		t.Helper()
		if make == nil {
			if part != nil {
				t.Errorf("%s: arguments or a result where there are none", line)
			}
			return
		}
		inner := make()
		if err := decode(part, inner); err != nil {
			t.Errorf("%s: %v", line, err)
			return
		}
		if got := string(Marshal(inner)); got != string(part) {
			t.Errorf("%s\n inner object printed: %s", line, got)
		}
		if got := string(Marshal(v)); got != line {
			t.Errorf("%s\nprinted: %s", line, got)
		}
	}
	for _, line := range examples(t) {
		switch {
		case strings.Contains(line, `"op"`):
			r, err := ParseRequest([]byte(line))
			if err != nil {
				t.Errorf("%s: %v", line, err)
				continue
			}
			ops[r.ID] = r.Op
			seen[r.Op] = true
			again(line, r, args[r.Op], r.Args)
		case strings.Contains(line, `"result"`):
			r, err := ParseReply([]byte(line))
			if err != nil {
				t.Errorf("%s: %v", line, err)
				continue
			}
			again(line, r, results[ops[r.ID]], r.Result)
		default:
			e, err := ParseEvent([]byte(line))
			known := slices.Contains([]string{EventDown, EventGone, EventSRQLimit, EventCQError,
				EventStopping}, e.Event)
			if err != nil || !known || string(Marshal(e)) != line {
				t.Errorf("%s: %v, printed %s", line, err, Marshal(e))
			}
		}
	}
	for op := range args {
		if !seen[op] {
			t.Errorf("%s has no example in PROTOCOL.md", op)
		}
	}
	for _, s := range sentinels {
		if text, _ := os.ReadFile("PROTOCOL.md"); !strings.Contains(string(text), "`"+
			string(s.code)+"`") {
			t.Errorf("code %s does not stand in PROTOCOL.md", s.code)
		}
	}
}

func TestErrors(t *testing.T) {
	for _, tc := range []struct {
		err  error
		code Code
		is   error
	}{
		{verbs.ErrRejected, CodeRejected, verbs.ErrRejected},
		{verbs.ErrLapsed, CodeLapsed, verbs.ErrLapsed},
		{ddp.ErrBusy, CodeBusy, ddp.ErrBusy},
		{context.Canceled, CodeCanceled, context.Canceled},
		{unix.EADDRINUSE, CodeFailed, unix.EADDRINUSE},
		{tcp.CauseRefused, CodeFailed, unix.ECONNREFUSED},
		{verbs.ErrLapsed, CodeLapsed, unix.ECONNABORTED},
		{errors.New("other"), CodeFailed, nil},
		{&Error{Code: CodeQuota, Text: "much"}, CodeQuota, nil},
	} {
		e := AsError(errors.Join(errors.New("first"), tc.err))
		if e.Code != tc.code || !strings.Contains(e.Text, tc.err.Error()) {
			t.Errorf("%v becomes %+v", tc.err, e)
		}
		if tc.is != nil && !errors.Is(e, tc.is) {
			t.Errorf("%+v is not %v", e, tc.is)
		}
		if errors.Is(e, io.EOF) {
			t.Errorf("%+v is io.EOF", e)
		}
	}
	if AsError(nil) != nil {
		t.Error("a nil error becomes an error")
	}
}

func TestCounters(t *testing.T) {
	got := Counters(&struct {
		RxFrames, NoHop uint64
		TCP             struct{ SRTT int32 }
		Name            string
		LastErrno       uint16
		Negative        int
	}{1, 2, struct{ SRTT int32 }{3}, "x", 4, -1})
	want := map[string]uint64{"rx_frames": 1, "no_hop": 2, "srtt": 3, "last_errno": 4}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
