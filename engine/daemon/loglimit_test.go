package daemon_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"xwarp/engine/daemon"
)

func TestLimitLog(t *testing.T) {
	var out bytes.Buffer
	h := daemon.LimitLog(slog.NewTextHandler(&out, nil)).WithAttrs(
		[]slog.Attr{slog.Int("device", 1)})
	now := time.Unix(1000, 0)
	say := func(level slog.Level, text string) {
		if err := h.Handle(context.Background(), slog.NewRecord(now, level, text, 0)); err != nil {
			t.Fatal(err)
		}
	}
	for range 250 {
		say(slog.LevelInfo, "flood")
		say(slog.LevelError, "bad")
	}
	say(slog.LevelInfo, "other")
	if got := strings.Count(out.String(), "msg=flood"); got != 100 {
		t.Errorf("%d lines of one message, want 100", got)
	}
	if got := strings.Count(out.String(), "msg=bad"); got != 250 {
		t.Errorf("%d errors, want all 250", got)
	}
	if !strings.Contains(out.String(), "msg=other device=1") {
		t.Error("another message is kept back, or its attributes are")
	}
	now = now.Add(10 * time.Second)
	say(slog.LevelInfo, "flood")
	if got := strings.Count(out.String(), "msg=flood"); got != 101 {
		t.Errorf("%d lines of one message in two windows, want 101", got)
	}
}

// TestLimitLogCounts: the number of dropped lines is logged without waiting for another line of the message.
func TestLimitLogCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(daemon.LimitLog(slog.NewTextHandler(&out, nil))).With("device", 1)
		for range 250 {
			log.Warn("flood")
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if !strings.HasSuffix(out.String(),
			"level=WARN msg=\"log lines suppressed\" message=flood lines=150\n") {
			t.Errorf("afterwards: %s", out.String()[len(out.String())-200:])
		}
	})
}
