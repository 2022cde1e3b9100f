package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"xwarp/engine/daemon/view"
)

// The table fits a terminal of 80 columns with any content.
func TestTopFits(t *testing.T) {
	long := strings.Repeat("x", 60)
	v := view.Top{
		Queues: []view.QueueRates{{Device: "enp193s0f1np1vx", Queue: 4095, RxPPS: 148.8e6,
			TxPPS: 148.8e6, RxBPS: 400e9, TxBPS: 400e9}},
		Conns: []view.ConnRates{{
			Device: long, Owner: "export " + long, Tenant: long, Session: 1, Local: long,
			Remote: "[2001:db8:1234:5678:9abc:def0:1234:5678]:65535", State: "TERMINATE",
			InBPS: 399.6e9, OutBPS: 999.6e3, Ahead: 148.8e6, Held: 1 << 40, Retrans: 1 << 50,
		}},
		Drops: []view.DropRates{{Device: long, Cause: long, Frames: 1 << 50, Rate: 148.8e6}},
	}
	var out strings.Builder
	if err := writeTop(&out, &v); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if !strings.Contains(out.String(), ":1234:5678]:65535") {
		t.Errorf("the port is cut off:\n%s", out.String())
	}
	out.Reset()
	v.Conns = []view.ConnRates{{Owner: "rping", Session: 37, UID: 0, Remote: "192.0.2.255:65535"}}
	if err := writeTop(&out, &v); err != nil || !strings.Contains(out.String(),
		"root     rping     192.0.2.255:65535 ") {
		t.Errorf("%v: user and program are missing:\n%s", err, out.String())
	}
}

// q quits top, and the mode of the terminal is restored.
func TestQuitKey(t *testing.T) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	modes := func() unix.Termios {
		v, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		return *v
	}
	before := modes()
	ctx, restore, err := quitKey(t.Context(), tty)
	if err != nil {
		t.Fatal(err)
	}
	if modes().Lflag&unix.ICANON != 0 {
		t.Error("keys wait for the end of the line")
	}
	if _, err := master.WriteString("xq"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Minute):
		t.Error("q does not end it")
	}
	restore()
	if modes() != before {
		t.Error("the terminal's mode is not restored")
	}
	// A pipe is not a terminal: nothing is read from it.
	in := bytes.NewBufferString("q")
	ctx, restore, err = quitKey(context.Background(), in)
	if err != nil || ctx.Err() != nil || in.Len() != 1 {
		t.Errorf("%v, %v", err, ctx.Err())
	}
	restore()
}
