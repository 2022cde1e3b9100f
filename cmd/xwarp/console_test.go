package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Without a terminal, a bar prints lines if requested.
func TestBarWithoutTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		b := newBar(&out)
		for i := range 60 {
			if i == 30 {
				b.every = 10 * time.Second
			}
			time.Sleep(time.Second)
			b.show("Write", int64(i)<<20, 64<<20)
		}
		b.clear()
		if want := "Write: 30.0 MiB of 64.0 MiB\nWrite: 40.0 MiB of 64.0 MiB\n" +
			"Write: 50.0 MiB of 64.0 MiB\n"; out.String() != want {
			t.Errorf("%q, want %q", out.String(), want)
		}
	})
}

// Repeated lines are printed once.
func TestWithoutRepeats(t *testing.T) {
	if got := withoutRepeats("gone\nother\ngone\ngone"); got != "gone\nother" {
		t.Errorf("%q", got)
	}
}
