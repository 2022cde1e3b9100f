package libxwarpverbs_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"xwarp/engine/daemon/control"
)

// TestOwnHost runs both ends of unmodified programs on one host: at the address of a device, at that of another device
// of the daemon, and at those of lo. A client of a port without a listener must be rejected.
func TestOwnHost(t *testing.T) {
	a, _ := pair(t)
	a.second(t)
	const last, complete = "rdma-ping-2: CDEFGH", "test complete\nreturn status 0"
	for name, tc := range map[string]struct{ listen, connect string }{
		"own IPv4":            {"", "@"},
		"own IPv6":            {"-a ::0", "%"},
		"named":               {"-a @", "@"},
		"another device":      {"-a 198.51.100.1", "198.51.100.1"},
		"across devices":      {"", "198.51.100.1 -I @"},
		"wildcard, 127.0.0.1": {"", "127.0.0.1"},
		"wildcard, ::1":       {"-a ::0", "::1"},
		"127.0.0.1":           {"-a 127.0.0.1", "127.0.0.1"},
		"::1":                 {"-a ::1", "::1"},
	} {
		t.Run(name, func(t *testing.T) {
			const ping = "rping -v -V -C 3 "
			x := exchange{ping + "-s " + tc.listen, ping + "-c -a " + tc.connect, last, last}
			x.runOwn(t, a)
		})
	}
	t.Run("ucmatose", func(t *testing.T) {
		x := exchange{"ucmatose -C 20 -S 1000 -c 4", "ucmatose -s @ -C 20 -S 1000 -c 4", complete,
			complete}
		x.runOwn(t, a)
	})
	for _, at := range []string{"@", "127.0.0.1"} {
		out := a.start(t, "rping -c -v -C 1 -a "+at, a).end(t)
		if !strings.Contains(out, "RDMA_CM_EVENT_REJECTED") {
			t.Errorf("nobody listens at %s:\n%s", at, out)
		}
	}
}

// runOwn is exchange.run with both ends on one host.
func (x *exchange) runOwn(t *testing.T, a *end) {
	a.wait(t, "an earlier server listens", func(s control.Snapshot) bool {
		return len(s.Listeners) == 0
	})
	s := a.start(t, x.server, a)
	target := strings.NewReplacer("@", a.addr, "%", a.addr6).Replace(x.client)
	a.until(t, s, "listens", func() bool { // a wildcard server opens its addresses one after the other
		for word := range strings.FieldsSeq(target) {
			if at, err := netip.ParseAddr(word); err == nil {
				return slices.ContainsFunc(a.daemon.Snapshot().Listeners,
					func(l control.ListenerState) bool { return l.Addr.Addr() == at })
			}
		}
		return false
	})
	c := a.start(t, x.client, a)
	x.check(t, c, x.wantClient)
	x.check(t, s, x.wantServer)
}

// second adds an interface to the host of e, and a device for it to its daemon.
func (e *end) second(t *testing.T) {
	t.Helper()
	if err := e.host.AddVeth("own0", "own1", netip.MustParseAddr("198.51.100.1")); err != nil {
		t.Fatal(err)
	}
	e.daemon.Close() // may return an error: on a loaded machine it exceeds its timeout
	path := filepath.Join(filepath.Dir(e.socket), "xwarp.toml")
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, append(text, "[[interface]]\nname = \"own0\"\n"...), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	e.up(t, path)
}
