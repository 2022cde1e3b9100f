package daemon_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
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
	say(slog.LevelInfo, "flood")
	if !strings.HasSuffix(out.String(), "msg=flood device=1 lines_kept_back=150\n"+
		lastLine(out.String())) {
		t.Errorf("afterwards: %s", out.String()[len(out.String())-200:])
	}
}

func lastLine(s string) string {
	s = strings.TrimSuffix(s, "\n")
	return s[strings.LastIndexByte(s, '\n')+1:] + "\n"
}
