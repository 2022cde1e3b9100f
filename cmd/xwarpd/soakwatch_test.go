package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"xwarp/engine/daemon/client"
)

// quantity is a resource of a process that must not grow.
type quantity struct {
	name     string
	relative float64 // allowed growth from the median of the second quarter to that of the last, as a fraction
	absolute float64 // allowed growth in addition, in the unit of the quantity
}

// The allowances cover differences by chance: a garbage collection, another session or connection.
var quantities = []quantity{
	{"rss MiB", 0.10, 4}, {"heap MiB", 0.20, 4}, {"descriptors", 0, 12}, {"threads", 0, 3},
	{"goroutines", 0, 12}, {"sessions", 0, 1},
}

// watched is a process whose quantities are sampled.
type watched struct {
	name    string
	pid     int
	state   string         // the socket of tellState
	daemon  *client.Device // an operator's session, nil for another process
	samples [][]float64    // in the order of quantities
}

// sample reads the quantities once.
func (w *watched) sample() error {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.pid))
	if err != nil {
		return err
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", w.pid))
	if err != nil {
		return err
	}
	c, err := net.Dial("unix", w.state)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	var g goState
	if err := json.NewDecoder(c).Decode(&g); err != nil {
		return err
	}
	s := []float64{field(status, "VmRSS:") / 1024, float64(g.Heap) / (1 << 20), float64(len(files)),
		field(status, "Threads:"), float64(g.Goroutines)}
	if w.daemon != nil {
		n, err := w.sessions()
		if err != nil {
			return err
		}
		s = append(s, float64(n))
	}
	w.samples = append(w.samples, s)
	return nil
}

// field returns a number from /proc/PID/status.
func field(status []byte, name string) float64 {
	_, rest, _ := bytes.Cut(status, []byte("\n"+name))
	line, _, _ := strings.Cut(strings.TrimSpace(string(rest)), "\n")
	v, _ := strconv.ParseFloat(strings.TrimSuffix(line, " kB"), 64)
	return v
}

func (w *watched) String() string {
	var b strings.Builder
	fmt.Fprint(&b, w.name, ":")
	if len(w.samples) > 0 {
		for i, v := range w.samples[len(w.samples)-1] {
			fmt.Fprintf(&b, " %.4g %s", v, quantities[i].name)
		}
	}
	return b.String()
}

// enough is the number of samples needed to judge growth.
const enough = 40

// growth compares the medians of the second and the last quarter of the samples, and returns a text for each quantity
// that grew. It returns none if there are too few samples.
func (w *watched) growth() (grown []string) {
	if len(w.samples) < enough {
		return nil
	}
	quarter := len(w.samples) / 4
	for i := range w.samples[0] {
		q := &quantities[i]
		was := median(w.samples[quarter:2*quarter], i)
		is := median(w.samples[len(w.samples)-quarter:], i)
		if is > was*(1+q.relative)+q.absolute {
			grown = append(grown, fmt.Sprintf("%s: %s grew from %.4g in the second quarter to "+
				"%.4g in "+
				"the last (medians; allowed %.0f %% and %g)", w.name, q.name, was, is,
				100*q.relative,
				q.absolute))
		}
	}
	return grown
}

// medians formats the values that growth compared.
func (w *watched) medians() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, medians of quarters:", w.name)
	for i := range w.samples[0] {
		fmt.Fprintf(&b, " %s", quantities[i].name)
		for q := range 4 {
			n := len(w.samples)
			fmt.Fprintf(&b, " %.4g", median(w.samples[q*n/4:max(q*n/4+1, (q+1)*n/4)], i))
		}
		b.WriteByte(';')
	}
	return b.String()
}

func median(samples [][]float64, i int) float64 {
	v := make([]float64, 0, len(samples))
	for _, s := range samples {
		v = append(v, s[i])
	}
	slices.Sort(v)
	return v[len(v)/2]
}

// sessions returns the number of sessions of the daemon.
func (w *watched) sessions() (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := w.daemon.Snapshot(ctx)
	return len(s.Sessions), err
}

// nothingLeft waits until the daemon has no objects of its programs. The test fails if some remain after a minute.
func (s *soak) nothingLeft() {
	s.Helper()
	operator := s.watched[0].daemon
	var left string
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(100 * time.Millisecond) {
		now, err := operator.Snapshot(s.Context())
		if err != nil {
			s.Errorf("xwarpd: %v", err)
			return
		}
		left = ""
		for _, u := range now.Users {
			if u.Used != 0 && u.UID != 0 {
				left += fmt.Sprintf(" user %d has %d %s", u.UID, u.Used, u.Resource)
			}
		}
		if n := len(now.Sessions); n != 1 {
			left += fmt.Sprintf(" %d sessions beside the operator's", n-1)
		}
		if n := len(now.MRs) + len(now.CQs) + len(now.Listeners) + len(now.PDs) + len(
			now.QPs); n != 0 {
			left += fmt.Sprintf(" %d objects", n)
		}
		if left == "" {
			return
		}
	}
	s.Errorf("xwarpd, a minute after its programs:%s", left)
}
