package web_test

import (
	"context"
	"flag"
	"fmt"
	"math"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"xwarp/bpf/needs"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/web"
	"xwarp/engine/stack"
	"xwarp/engine/verbs"
)

var shots = flag.String("shots", "", "directory for screenshots of the status page")

// browser is a headless Chromium. It records errors of the page, and the addresses that the page requests.
type browser struct {
	context.Context
	mu       sync.Mutex
	faults   []string // console errors, violated policies, exceptions
	requests []string
}

// names are the names that distributions give to the executable of the browser.
var names = []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome",
	"headless_shell"}

func open(t *testing.T) *browser {
	t.Helper()
	path := ""
	for _, n := range names {
		if p, err := exec.LookPath(n); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		const cure = "no Chromium: scripts/setup.sh test (or apt-get install " +
			"chromium-headless-shell)"
		if os.Getenv("CI") != "" {
			t.Fatal(cure)
		}
		t.Skip(cure)
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path),
		chromedp.NoSandbox, chromedp.WindowSize(1280, 1000))
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	ctx, end := chromedp.NewExecAllocator(ctx, opts...)
	b := &browser{}
	var closePage context.CancelFunc
	b.Context, closePage = chromedp.NewContext(ctx)
	t.Cleanup(func() { closePage(); end(); cancel() })
	if err := chromedp.Listen(b, b.hear); err != nil {
		t.Fatal(err)
	}
	call(t, b, network.Enable, network.EnableParams{})
	call(t, b, log.Enable, cdp.Empty{})
	call(t, b, cdpruntime.Enable, cdp.Empty{})
	return b
}

func call[P, R any](t *testing.T, b *browser, c cdp.Command[P, R], p P) {
	t.Helper()
	if _, err := chromedp.Call(b, c, p); err != nil {
		t.Fatal(err)
	}
}

func (b *browser) hear(ev any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := ev.(type) {
	case *cdpruntime.EventExceptionThrown:
		b.faults = append(b.faults, "exception: "+e.ExceptionDetails.Text)
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError {
			b.faults = append(b.faults, "console: "+e.Entry.Text)
		}
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	}
}

// clean fails the test if the page logged an error, or contacted any other server.
func (b *browser) clean(t *testing.T, server string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.faults {
		t.Error(f)
	}
	for _, r := range b.requests {
		if !strings.HasPrefix(r, server) {
			t.Errorf("the page requests %s", r)
		}
	}
	if len(b.requests) < 8 {
		t.Errorf("only %d requests were seen: %v", len(b.requests), b.requests)
	}
}

func (b *browser) run(t *testing.T, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(b, actions...); err != nil {
		t.Fatal(err)
	}
}

// eval returns the value of an expression.
func eval[T any](t *testing.T, b *browser, js string) (v T) {
	t.Helper()
	v, err := chromedp.Run(b, chromedp.Evaluate[T](js))
	if err != nil {
		t.Fatalf("%s: %v", js, err)
	}
	return v
}

func (b *browser) click(t *testing.T, sel string) {
	t.Helper()
	b.run(t, chromedp.Click(chromedp.CSS(sel)))
}

// enter replaces the text of the filter.
func (b *browser) enter(t *testing.T, text string) {
	t.Helper()
	eval[bool](t, b, `($("filter").value = "", $("filter").dispatchEvent(new Event("input")))`)
	if text != "" {
		b.run(t, chromedp.SendKeys(chromedp.CSS("#filter"), text))
	}
}

// until waits for an expression to become true.
func (b *browser) until(t *testing.T, js string) {
	t.Helper()
	if _, err := chromedp.Run(b, chromedp.Poll[bool](js, chromedp.WithPollingTimeout(time.Minute),
		chromedp.WithPollingInterval(50*time.Millisecond))); err != nil {
		text, _ := chromedp.Run(b, chromedp.Text(chromedp.CSS("body")))
		t.Fatalf("waiting for %s: %v\nthe page says:\n%s", js, err, text)
	}
}

func (b *browser) shot(t *testing.T, name string) {
	t.Helper()
	if *shots == "" {
		return
	}
	png, err := chromedp.Run(b, chromedp.FullScreenshot(100))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*shots, name), png, 0o644); err != nil {
		t.Fatal(err)
	}
}

// busy returns a snapshot function for a host with two devices and much traffic. Text that programs and peers choose is
// hostile: it contains HTML.
func busy() func() control.Snapshot {
	second := 0
	return func() control.Snapshot {
		second += 2
		now := time.Now().Add(time.Duration(second)*time.Second - 10*time.Minute)
		n := uint64(second)
		s := control.Snapshot{Status: control.Status{Schema: 1, Pid: 4711, Version: "v1.4.0",
			Uptime: 93_784 + float64(second), Pending: []string{}}, Time: now}
		for i, name := range []string{"eth0", "eth1"} {
			d := control.DeviceState{Name: name, DeviceMode: verbs.DeviceMode{Name: "xdp",
				Interface: name, XDPMode: "native", Copy: "zero-copy", MTU: 9000, Queues: 2},
				In: integral(second, 3*i, 70), Out: integral(second, 3*i+5, 41) / 3,
				Addresses: []netip.Addr{}, Missing: []netip.Addr{}, UnservedQueues: []int{},
				Dropped: []control.Drop{}}
			if dropped := (n / 120) * 7; i == 0 && dropped > 0 {
				d.Dropped = []control.Drop{{Cause: "checksum", Frames: dropped},
					{Cause: "syn", Frames: (n / 90) * 19}}
			}
			s.Devices = append(s.Devices, d)
			s.Statistics = append(s.Statistics, control.Statistic{
				Port: control.Port{DeviceRef: control.DeviceRef{Device: name}}, Queue: new(0),
				Part:     "stack",
				Counters: control.Counters(stack.Stats{RxFrames: 81_000 * n, TxFrames: 44_000 * n}),
			})
		}
		s.Devices[1].Unowned, s.Devices[1].UnservedQueues = 17, []int{1}
		for i := range 12 {
			q := control.QPState{
				Port: control.Port{DeviceRef: control.DeviceRef{Device: []string{"eth0", "eth0",
					"eth1"}[i%3]}},
				Owner: control.Owner{Session: uint64(3 + i%4)}, Handle: control.Handle(4 + i),
				State: "RTS",
				Local: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, 1}),
					uint16(40000+i)),
				Remote: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(20 + i)}),
					7174),
				In: integral(second, i, 70), Out: integral(second, i+5, 41) / 3,
				Held: uint64(i%3) * 18_000,
				MPA:  map[string]uint64{"out_by_marker": n * uint64(i%4) * 11},
				TCP:  map[string]uint64{"retransmitted_bytes": uint64(i%5) * 1_460_000},
			}
			if i == 7 {
				q.Export, q.Session = "scratch", 0
			}
			if i == 11 {
				q.State, q.Error = "TERMINATE", "peer's access error"
			}
			s.QPs = append(s.QPs, q)
		}
		s.Sessions = make([]control.SessionState, 4)
		s.Exports = []control.ExportState{{Name: "scratch", Device: "eth0",
			Listen: "0.0.0.0:7174", Serve: "memory",
			Memory: "hugepages", Size: 4 << 30, Access: "read-write", Connections: 1, Rejected: 2},
			{Name: "images", Device: "eth0", Listen: "0.0.0.0:7175",
				Serve: "directory", Size: 4 << 30, Access: "read-write",
				Puts: 3, PutBytes: 5_600_000_000, Gets: 40, GetBytes: 160_000_000_000, Failed: 1}}
		s.Count = s.Numbers()
		s.Events = happenings(now)
		return s
	}
}

// integral returns the value of a counter whose rate rises and falls.
func integral(second, i int, period float64) uint64 {
	x := float64(second)
	return uint64(1e8 * (x*1.3*float64(1+i%4) +
		period*float64(i%4)*(1-math.Cos(x/period+float64(i))) + 2*(1-math.Cos(x/3))))
}

const hostile = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`

func happenings(now time.Time) (list []control.EventRecord) {
	add := func(ago int, level, event, remote, why string, detail map[string]string) {
		e := control.EventRecord{Seq: uint64(len(list) + 1),
			Time: now.Add(-time.Duration(ago) * time.Second), Level: level, Event: event,
			Device: "eth0", Remote: remote, Error: why, Detail: detail}
		if remote != "" {
			e.Local = "192.0.2.1:40003"
		}
		list = append(list, e)
	}
	add(90_000, "INFO", "device is open", "", "", map[string]string{"mtu": "9000",
		"xdp_mode": "native"})
	add(520, "INFO", "program connected", "", "", map[string]string{"program": hostile,
		"uid": "1000", "pid": "8123"})
	add(515, "INFO", "RDMA_CM_EVENT_ESTABLISHED", "192.0.2.20:7174", "",
		map[string]string{"revision": "2", "markers_in": "true", "crc": "true"})
	add(300, "INFO", "RDMA_CM_EVENT_CONNECT_REQUEST", "192.0.2.31:50122", "",
		map[string]string{"private_data": "32"})
	add(299, "INFO", "RDMA_CM_EVENT_ESTABLISHED", "192.0.2.31:50122", "",
		map[string]string{"revision": "1", "markers_in": "false", "crc": "true"})
	add(64, "WARN", "IBV_WC_REM_ACCESS_ERR", "192.0.2.31:7174", "", map[string]string{"op": "write",
		"qp": "15"})
	add(64, "INFO", "RDMA_CM_EVENT_DISCONNECTED", "192.0.2.31:7174",
		"terminate: remote protection: base or bounds violation", nil)
	add(20, "WARN", "cannot resolve next hop", "192.0.2.77", "no answer to ARP", nil)
	add(4, "ERROR", "export stopped: it accepts no connections", "", "listener is closed", nil)
	return list
}

// TestPage checks what the page shows of a snapshot with hostile text, while it is filtered, sorted and restyled, on a
// narrow screen, and after the server is gone.
func TestPage(t *testing.T) {
	needs.Long(t)
	snapshot := busy()
	pages := web.New(web.Config{Snapshot: snapshot, StatusPage: true})
	defer pages.Close()
	pages.Fill(280)
	srv := httptest.NewServer(pages)
	defer srv.Close()
	b := open(t)
	call(t, b, emulation.SetEmulatedMedia,
		emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: "light"}}})
	b.run(t, chromedp.Navigate(srv.URL+"/"))
	b.until(t, `document.documentElement.dataset.ready === "yes"`)
	rows := func() int {
		return eval[int](t, b, `document.querySelectorAll("#conns tbody tr").length`)
	}
	text := func(sel string) string {
		return eval[string](t, b, fmt.Sprintf(`document.querySelector(%q).innerText`, sel))
	}
	if rows() != 12 || !strings.HasPrefix(text("#t-conns"), "12") || text("#version") != "v1.4.0" {
		t.Errorf("%d rows, tile %q, version %q", rows(), text("#t-conns"), text("#version"))
	}
	for _, plot := range []string{"#plot-rates", "#plot-drops"} {
		if n := eval[int](t, b,
			fmt.Sprintf(`document.querySelector("%s path").getAttribute("d").split("L").length`,
				plot)); n < 250 {
			t.Errorf("%s draws %d points", plot, n)
		}
	}
	// A program's name is shown as text, not as HTML.
	if got := text("#events"); !strings.Contains(got, "program "+hostile) {
		t.Errorf("the hostile name does not show as it is: %s", got)
	}
	if title := eval[string](t, b, "document.title"); title != "xwarpd" ||
		eval[int](t, b, `document.querySelectorAll("main img, main script").length`) != 0 {
		t.Errorf("a name became HTML; title %q", title)
	}

	b.enter(t, "192.0.2.27")
	if rows() != 1 || !strings.Contains(text("#conns tbody"), "export scratch") ||
		text("#conns-count") != "1 of 12" {
		t.Errorf("filtered: %d rows, %q, %s", rows(), text("#conns-count"), text("#conns tbody"))
	}
	b.enter(t, "zzz")
	if got := text("#conns tbody"); got != "No connection matches the filter." {
		t.Errorf("nothing matches: %q", got)
	}
	b.enter(t, "")

	remotes := `[...document.querySelectorAll("#conns tbody td:nth-child(4)")].map((e) => e.innerText).join(" ")`
	b.click(t, `th[data-key="remote"] button`)
	if got := eval[string](t, b, remotes); !strings.HasPrefix(got,
		"192.0.2.20:7174 192.0.2.21:7174") {
		t.Errorf("sorted: %s", got)
	}
	b.click(t, `th[data-key="remote"] button`)
	if got := eval[string](t, b, remotes); !strings.HasPrefix(got, "192.0.2.31:7174") ||
		eval[string](t, b,
			`document.querySelector('th[data-key="remote"]').ariaSort`) != "descending" {
		t.Errorf("sorted in reverse: %s", got)
	}
	b.click(t, `th[data-key="in_bits_per_second"] button`)

	events := func() int {
		return eval[int](t, b, `document.querySelectorAll("#events li").length`)
	}
	if events() != 9 {
		t.Errorf("%d events", events())
	}
	b.click(t, `#event-kinds button:nth-child(2)`)
	if events() != 5 || strings.Contains(text("#events"), "cannot resolve next hop") {
		t.Errorf("connections: %d events\n%s", events(), text("#events"))
	}
	b.click(t, `#event-kinds button:nth-child(3)`)
	if events() != 4 || !strings.Contains(text("#events"), "IBV_WC_REM_ACCESS_ERR") {
		t.Errorf("problems: %d events\n%s", events(), text("#events"))
	}
	b.click(t, `#event-kinds button:nth-child(1)`)

	b.click(t, `#devices button:nth-child(3)`)
	if got := text("#device-list"); rows() != 4 || strings.Contains(got, "eth0") ||
		!strings.Contains(got, "17 frames dropped on unserved queues (1)") {
		t.Errorf("eth1: %d rows, %s", rows(), got)
	}
	b.click(t, `#devices button:nth-child(1)`)
	const moved = "3 files stored: 5.22 GiB, 40 files fetched: 149 GiB"
	if got := text("#export-list"); !strings.Contains(got, moved) ||
		!strings.Contains(got, "1 transfer refused or aborted") {
		t.Errorf("exports: %s", got)
	}

	eval[bool](t, b,
		`$("plot-rates").dispatchEvent(new PointerEvent("pointermove", { clientX: $("plot-rates").getBoundingClientRect().left + 420 }))`)
	if got := text("#plot-rates .tip"); !strings.Contains(got, "received") ||
		!strings.Contains(got, "bit/s") {
		t.Errorf("under the pointer: %q", got)
	}
	b.shot(t, "light.png")
	background := `getComputedStyle(document.body).backgroundColor`
	light := eval[string](t, b, background)
	b.click(t, "#theme")
	if dark := eval[string](t, b, background); dark == light {
		t.Errorf("dark is as light: %s", dark)
	}
	b.shot(t, "dark.png")
	b.run(t, chromedp.Reload())
	b.until(t, `document.documentElement.dataset.ready === "yes"`)
	if eval[string](t, b, `document.documentElement.dataset.theme`) != "dark" {
		t.Error("the choice is forgotten")
	}
	b.run(t, chromedp.EmulateViewport(390, 844))
	if wide := eval[int](t, b, "document.documentElement.scrollWidth"); wide > 390 {
		t.Errorf("on a telephone the page is %d wide", wide)
	}
	b.shot(t, "narrow.png")
	b.clean(t, srv.URL)

	srv.CloseClientConnections()
	srv.Close()
	b.until(t, `document.getElementById("live").className === "off"`)
	if got := text("#live"); got != "the daemon does not answer" || rows() != 12 {
		t.Errorf("without a daemon: %q, %d rows", got, rows())
	}
}
