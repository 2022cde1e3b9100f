package main

import (
	"slices"
	"testing"
	"time"

	"xwarp/engine/daemon/control"
)

// Events are reported once, in order of time.
func TestNewEvents(t *testing.T) {
	at := func(seq uint64, ms int64) control.EventRecord {
		return control.EventRecord{Seq: seq, Time: time.UnixMilli(ms), Event: "e"}
	}
	var seq uint64
	s := &control.Snapshot{Events: []control.EventRecord{at(1, 100), at(2, 200)}}
	if list := newEvents(s, &seq, true); len(list) != 0 || seq != 2 {
		t.Errorf("first look: %v, %d", list, seq)
	}
	s.Events = append(s.Events, at(3, 600), at(4, 300))
	list := newEvents(s, &seq, false)
	if len(list) != 2 || seq != 4 || !slices.IsSortedFunc(list, func(a, b change) int {
		return compareTimes(t, a.Time, b.Time)
	}) {
		t.Errorf("%+v, %d", list, seq)
	}
	if list := newEvents(s, &seq, false); len(list) != 0 {
		t.Errorf("again: %+v", list)
	}
}

func compareTimes(t *testing.T, a, b string) int {
	t.Helper()
	x, err := time.Parse(timeFormat, a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := time.Parse(timeFormat, b)
	if err != nil {
		t.Fatal(err)
	}
	return x.Compare(y)
}
