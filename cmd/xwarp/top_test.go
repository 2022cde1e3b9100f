package main

import (
	"bufio"
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
	if err := writeTop(&out, &v, termSize{}); err != nil {
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
	if err := writeTop(&out, &v, termSize{}); err != nil || !strings.Contains(out.String(),
		"root     rping     192.0.2.255:65535 ") {
		t.Errorf("%v: user and program are missing:\n%s", err, out.String())
	}
}

// openPTY returns the two ends of a pseudoterminal.
func openPTY(t *testing.T) (master, tty *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	return master, tty
}

// TestTopFollowsTheTerminal: the view has at most the rows and columns of the terminal, also after a change of its
// size, and cuts no name for which there is room.
func TestTopFollowsTheTerminal(t *testing.T) {
	master, tty := openPTY(t)
	const remote = "[2001:db8:1234:5678:9abc:def0:1234:5678]:65535"
	const owner = "a-program-with-a-long-name"
	v := view.Top{Drops: []view.DropRates{{Device: "eth0", Cause: "checksum", Frames: 7}}}
	for i := range 60 {
		v.Queues = append(v.Queues, view.QueueRates{Device: "eth0", Queue: i})
		v.Conns = append(v.Conns, view.ConnRates{Session: 1, UID: 0, Owner: owner, Remote: remote})
	}
	s := screen{w: tty}
	defer s.watchSize()()
	frames := make(chan string)
	go func() {
		r := bufio.NewReader(master)
		for {
			text, err := r.ReadString('t') // of "quit"; no number or name here has a t
			for err == nil && !strings.HasSuffix(text, "q: quit") {
				var more string
				more, err = r.ReadString('t')
				text += more
			}
			if err != nil {
				return
			}
			frames <- strings.ReplaceAll(text, "\r\n", "\n")
		}
	}()
	for i, z := range []termSize{{24, 80}, {24, 20}, {60, 200}, {10, 300}, {5, 40}} {
		ws := unix.Winsize{Row: uint16(z.rows), Col: uint16(z.columns)}
		if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &ws); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			go s.show(&v, false)
		} else if err := unix.Kill(unix.Getpid(), unix.SIGWINCH); err != nil {
			t.Fatal(err)
		}
		var got string
		select {
		case got = <-frames:
		case <-time.After(time.Minute):
			t.Fatalf("%+v: nothing is drawn", z)
		}
		lines := strings.Split(strings.TrimPrefix(got, clearScreen), "\n")
		if len(lines) > z.rows {
			t.Errorf("%+v: %d lines:\n%s", z, len(lines), got)
		}
		for _, l := range lines {
			if n := utf8.RuneCountInString(l); n > z.columns {
				t.Errorf("%+v: %d columns: %s", z, n, l)
			}
		}
		if z.rows > 20 && z.columns >= 200 &&
			(!strings.Contains(got, remote) || !strings.Contains(got, owner)) {
			t.Errorf("%+v: a name is cut:\n%s", z, got)
		}
		if z.rows > 10 && (!strings.Contains(got, "more") || !strings.Contains(got, "chec")) {
			t.Errorf("%+v: a table is missing:\n%s", z, got)
		}
	}
}

// q quits top, and the mode of the terminal is restored.
func TestQuitKey(t *testing.T) {
	master, tty := openPTY(t)
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
