package web

import (
	"embed"
	"encoding/json"
	"net/http"

	"xwarp/engine/daemon/control"
)

//go:embed static
var static embed.FS

// Events is the content of /events.json.
type Events struct {
	Schema  int                   `json:"schema"`
	Command string                `json:"command"`
	Events  []control.EventRecord `json:"events"` // oldest first
}

// files maps paths to the parts of the page.
var files = map[string]struct{ name, kind string }{
	"/{$}":      {"index.html", "text/html; charset=utf-8"},
	"/page.js":  {"page.js", "text/javascript; charset=utf-8"},
	"/plot.js":  {"plot.js", "text/javascript; charset=utf-8"},
	"/page.css": {"page.css", "text/css; charset=utf-8"},
	"/icon.svg": {"icon.svg", "image/svg+xml"},
}

// addStatusPage adds the page and its data. /status.json has the keys of `xwarp status -j`, /top.json those of
// `xwarp top -j`.
func (p *Pages) addStatusPage() {
	for path, f := range files {
		p.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", f.kind)
			http.ServeFileFS(w, r, static, "static/"+f.name)
		})
	}
	p.json("/status.json", func(h *history) any { return h.now.Status })
	p.json("/top.json", func(h *history) any { return h.top })
	p.json("/history.json", func(h *history) any { return h.samples })
	p.json("/events.json", func(h *history) any {
		return Events{Schema: 1, Command: "events",
			Events: append([]control.EventRecord{}, h.now.Events...)}
	})
}

// json serves the object that make builds from the latest sample.
func (p *Pages) json(path string, make func(*history) any) {
	p.mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
		p.history.mu.Lock()
		b, err := json.Marshal(make(p.history))
		p.history.mu.Unlock()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write(append(b, '\n'))
	})
}
