package web

import (
	"slices"
	"sync"
	"time"

	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/view"
)

// interval is the time between two samples, points the maximum number of samples kept: those of ten minutes.
const (
	interval = 2 * time.Second
	points   = 300
)

// History is the data of the plots: one value of each series per time.
type History struct {
	Schema   int       `json:"schema"`
	Command  string    `json:"command"`
	Interval float64   `json:"interval_seconds"`
	Times    []float64 `json:"times"` // seconds since 1970
	Devices  []*series `json:"devices"`
}

// series holds the values of one device.
type series struct {
	Device string    `json:"device"`
	In     []float64 `json:"in_bits_per_second"`
	Out    []float64 `json:"out_bits_per_second"`
	Drops  []float64 `json:"dropped_frames_per_second"`
	Conns  []float64 `json:"connections"`
}

// history takes a sample every interval. Pages show the latest sample, so that readers do not cost the workers time.
type history struct {
	snapshot func() control.Snapshot
	end      chan struct{}
	ended    chan struct{}

	mu      sync.Mutex
	now     control.Snapshot
	top     view.Top
	samples History
}

func newHistory(snapshot func() control.Snapshot) *history {
	h := &history{snapshot: snapshot, end: make(chan struct{}), ended: make(chan struct{})}
	h.samples = History{Schema: 1, Command: "history", Interval: interval.Seconds(),
		Times: []float64{}, Devices: []*series{}}
	h.sample(snapshot())
	go h.run()
	return h
}

func (h *history) run() {
	defer close(h.ended)
	for tick := time.Tick(interval); ; {
		select {
		case <-h.end:
			return
		case <-tick:
			h.sample(h.snapshot())
		}
	}
}

func (h *history) stop() {
	close(h.end)
	<-h.ended
}

// sample stores s as the latest sample. The first one adds no points to the plots.
func (h *history) sample(s control.Snapshot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.now.Time.IsZero() { // rates need two samples
		h.top, h.now = view.MakeTop(&s, &s), s
		return
	}
	h.top = view.MakeTop(&h.now, &s)
	h.now = s
	push(&h.samples.Times, float64(s.Time.UnixMilli())/1000)
	for _, device := range h.top.Devices {
		v := h.series(device.Device)
		var drops, conns float64
		for _, c := range h.top.Conns {
			if c.Device == v.Device && c.Remote != "" {
				conns++
			}
		}
		for _, d := range h.top.Drops {
			if d.Device == v.Device {
				drops += d.Rate
			}
		}
		push(&v.In, device.InBPS)
		push(&v.Out, device.OutBPS)
		push(&v.Drops, drops)
		push(&v.Conns, conns)
	}
}

func (h *history) series(device string) *series {
	for _, v := range h.samples.Devices {
		if v.Device == device {
			return v
		}
	}
	v := &series{Device: device, In: []float64{}, Out: []float64{}, Drops: []float64{},
		Conns: []float64{}}
	h.samples.Devices = append(h.samples.Devices, v)
	return v
}

func push(list *[]float64, v float64) {
	if len(*list) == points {
		*list = slices.Delete(*list, 0, 1)
	}
	*list = append(*list, v)
}
