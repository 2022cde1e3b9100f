// Package web is the daemon's read-only HTTP server: Prometheus metrics and a status page.
package web

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/metrics"
)

// Config is the configuration of the server.
type Config struct {
	Snapshot   func() control.Snapshot // takes a snapshot of the daemon; may be called from any goroutine
	Hosts      []string                // host names that clients may use, besides addresses and localhost
	StatusPage bool
}

// Pages is the http.Handler of the server. Close stops its background goroutine.
type Pages struct {
	mux     *http.ServeMux
	hosts   []string
	history *history // nil without a status page
}

// New returns the pages. With a status page it takes snapshots periodically until Close.
func New(cfg Config) *Pages {
	p := &Pages{mux: http.NewServeMux()}
	for _, h := range cfg.Hosts {
		p.hosts = append(p.hosts, strings.ToLower(h))
	}
	p.mux.Handle("/metrics", metrics.Handler(cfg.Snapshot))
	if cfg.StatusPage {
		p.history = newHistory(cfg.Snapshot)
		p.addStatusPage()
	} else {
		p.mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.Write([]byte("xwarpd: metrics are at /metrics. The status page is off; " +
				"to enable it, set http.status_page = true.\n"))
		})
	}
	return p
}

// Close stops collecting samples. Requests may still arrive.
func (p *Pages) Close() {
	if p.history != nil {
		p.history.stop()
	}
}

// policy is the Content-Security-Policy. It lets the page load only embedded files, and forbids other pages to frame
// it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for " +
	"'script'; trusted-types 'none'"

// ServeHTTP implements http.Handler. It refuses methods other than GET and HEAD, and host names that known does not
// accept.
func (p *Pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "read-only: use GET or HEAD", http.StatusMethodNotAllowed)
	case !p.known(r.Host):
		http.Error(w, "host name not allowed: add it to http.hosts in the configuration, "+
			"or use an IP address", http.StatusMisdirectedRequest)
	default:
		p.mux.ServeHTTP(w, r)
	}
}

// known reports whether a Host header is an address, localhost or a configured name. Any other name may be a DNS
// rebinding attack: a site that points its own name here to read local pages through a visitor's browser.
func (p *Pages) known(host string) bool {
	name := strings.ToLower(host)
	if i := strings.LastIndexByte(name, ':'); i >= 0 && !strings.HasSuffix(name, "]") {
		name = name[:i]
	}
	name = strings.TrimSuffix(name, ".")
	if rest, ok := strings.CutPrefix(name, "["); ok {
		_, err := netip.ParseAddr(strings.TrimSuffix(rest, "]"))
		return err == nil
	}
	if a, err := netip.ParseAddr(name); err == nil {
		return a.Is4()
	}
	return name == "localhost" || slices.Contains(p.hosts, name)
}
