package web

import (
	"embed"
	"encoding/json"
	"net/http"

	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/view"
)

//go:embed static
var static embed.FS

// Events is what /events.json holds.
type Events struct {
	Schema  int                   `json:"schema"`
	Command string                `json:"command"`
	Events  []control.EventRecord `json:"events"` // the oldest first
}

// files are the parts of the page by their path.
var files = map[string]struct{ name, kind string }{
	"/{$}":      {"index.html", "text/html; charset=utf-8"},
	"/page.js":  {"page.js", "text/javascript; charset=utf-8"},
	"/plot.js":  {"plot.js", "text/javascript; charset=utf-8"},
	"/page.css": {"page.css", "text/css; charset=utf-8"},
	"/icon.svg": {"icon.svg", "image/svg+xml"},
}

// addStatusPage adds the page and its data. /status.json has the keys of `xwarp status -j`, /top.json those
// of `xwarp top -j`.
func (p *Pages) addStatusPage() {
	for path, f := range files {
		b, err := static.ReadFile("static/" + f.name)
		if err != nil {
			panic(err) // the binary is not the one that was built
		}
		p.mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", f.kind)
			w.Write(b)
		})
	}
	p.json("/status.json", func(now *control.Snapshot, _ *view.Top, _ *History) any {
		return view.MakeStatus(now)
	})
	p.json("/top.json", func(_ *control.Snapshot, top *view.Top, _ *History) any { return top })
	p.json("/history.json", func(_ *control.Snapshot, _ *view.Top, h *History) any { return h })
	p.json("/events.json", func(now *control.Snapshot, _ *view.Top, _ *History) any {
		e := Events{Schema: 1, Command: "events", Events: now.Events}
		if e.Events == nil {
			e.Events = []control.EventRecord{}
		}
		return e
	})
}

// json serves what make makes of the latest sample.
func (p *Pages) json(path string, make func(*control.Snapshot, *view.Top, *History) any) {
	p.mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
		var b []byte
		var err error
		p.history.read(func(now *control.Snapshot, top *view.Top, h *History) {
			b, err = json.Marshal(make(now, top, h))
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write(append(b, '\n'))
	})
}
