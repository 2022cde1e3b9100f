package libxwarpverbs_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// accepts waits until a program of e listens on a port of kernel TCP.
func (e *end) accepts(t testing.TB, p *program, port uint16) {
	t.Helper()
	const listen = "0A"
	want := regexp.MustCompile(fmt.Sprintf(`: [0-9A-F]+:%04X [0-9A-F]+:0000 %s `, port, listen))
	e.until(t, p, fmt.Sprintf("accepts connections at port %d", port), func() bool {
		var tables []byte
		e.host.Do(func() error {
			for _, name := range []string{"tcp", "tcp6"} {
				b, err := os.ReadFile("/proc/thread-self/net/" + name)
				if err != nil {
					return err
				}
				tables = append(tables, b...)
			}
			return nil
		})
		return want.Match(tables)
	})
}

// TestLibfabric lists the device with libfabric's verbs provider and verifies messages between two programs: over
// connected endpoints, and over reliable datagrams (rxm), which read long messages from the memory of the sender. The
// exit status does not count: each program closes when its own last message is sent, even if messages of the other are
// missing.
func TestLibfabric(t *testing.T) {
	a, b := pair(t)
	for provider, kind := range map[string]string{
		"verbs": "FI_EP_MSG", "verbs;ofi_rxm": "FI_EP_RDM",
	} {
		out := a.start(t, "fi_info -p "+provider, b).wait(t)
		for _, want := range []string{
			"fabric: Ethernet-iWARP", "domain: xwarp_eth0", "type: " + kind,
		} {
			if !strings.Contains(out, want) {
				t.Errorf("fi_info -p %s: no %s in\n%s", provider, want, out)
			}
		}
	}
	complete := regexp.MustCompile(`(?m)^1m +10 +=10 `)
	const control = 47592 // where the programs exchange their addresses
	for _, line := range []string{
		"fi_pingpong -p verbs -e msg -c", "fi_pingpong -p verbs -e msg -c -6",
		"fi_pingpong -p verbs;ofi_rxm -e rdm -c",
	} {
		t.Run(line, func(t *testing.T) {
			at := " @"
			if strings.Contains(line, "-6") {
				at = " %"
			}
			s := b.start(t, line, a)
			b.accepts(t, s, control)
			c := a.start(t, line+at, b)
			for e, p := range map[*end]*program{a: c, b: s} {
				e.until(t, p, "measured all sizes", func() bool {
					return complete.MatchString(p.out.String())
				})
			}
		})
	}
}
