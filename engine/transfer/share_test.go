package transfer_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"xwarp/engine/transfer"
)

// brief is the idle time of strict servers, whose clients stall, and of their clients. A shorter one would fail on a
// busy machine.
const brief = time.Second

func hurry(c *transfer.ServerConfig) { c.Idle = brief }

// dialBeating creates a client that sends Beats in time for a strict server, if the server is strict.
func (b *bench) dialBeating() *transfer.Client {
	b.t.Helper()
	c, err := transfer.Dial(patience(b.t), device(b.t), b.srv.Addr(), b.idle)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { c.Close() })
	return c
}

// An idle time close to zero is accepted, and does not end the process.
func TestShortestIdle(t *testing.T) {
	b, _ := start(t, func(c *transfer.ServerConfig) { c.Idle = time.Nanosecond })
	c, err := transfer.Dial(patience(t), device(t), b.srv.Addr(), time.Nanosecond)
	if err == nil {
		err = c.Close()
	}
	if err != nil {
		t.Error(err)
	}
}

// A client without requests keeps its place only until another client needs it.
func TestIdleClientMakesRoom(t *testing.T) {
	b, _ := start(t, func(c *transfer.ServerConfig) { hurry(c); c.MaxClients = 1 })
	b.dialBeating()
	for {
		c, err := transfer.Dial(patience(t), device(t), b.srv.Addr(), brief)
		if err == nil {
			c.Close()
			return
		}
		if patience(t).Err() != nil || !strings.Contains(err.Error(), "REJECTED") {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// A client that stalls while writing a file keeps the name of the file only until another client needs it. The next
// writer resumes the partial file.
func TestStalledWriterLosesItsName(t *testing.T) {
	b, _ := start(t, hurry)
	local, err := os.Create(filepath.Join(t.TempDir(), "local"))
	if err == nil {
		err = local.Truncate(transfer.PieceLen)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { local.Close() })
	a := transfer.Attr{Kind: transfer.KindFile, Mode: 0o600, Length: transfer.PieceLen}
	stalled := b.dialBeating()
	held, err := stalled.Store(patience(t), "wanted", a, 1, local)
	if err == nil {
		err = held.Move(patience(t), 0, transfer.PieceLen)
	}
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * brief)
	if err := held.Move(patience(t), 0, transfer.PieceLen); err != nil {
		t.Fatalf("the writer without a waiter: %v", err)
	}
	next := b.dialBeating()
	for ctx := patience(t); ; time.Sleep(brief / 10) {
		f, err := next.Store(ctx, "wanted", a, 2, local)
		if err == nil {
			if !f.Resumed() {
				t.Error("the other client's data is lost")
			}
			if err := f.Close(ctx, true); err != nil {
				t.Error(err)
			}
			break
		}
		refused(t, err, transfer.CodeFile, "is writing it")
		if t.Failed() {
			t.FailNow()
		}
	}
	refused(t, held.Move(patience(t), 0, transfer.PieceLen), transfer.CodeYield, "others wait")
}
