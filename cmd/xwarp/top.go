package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"xwarp/cmd/program"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/view"
	"xwarp/engine/plain"
)

func newTop(*global) *cobra.Command {
	var o operatorFlags
	views := 0
	cmd := &cobra.Command{
		Use: "top", Short: "Show live rates of queues and connections, and drops",
		Long: `top shows the rates of all queues and connections, and the frames dropped by cause, and refreshes them every --interval.
Press q or Ctrl-C to quit.

  OOO/s   FPDUs placed out of order per second
  HELD B  bytes held until the gap before them is filled
  RETX B  bytes retransmitted so far`,
		Example: "  xwarp top\n  xwarp top --interval 5s\n  xwarp top -n 1 -j",
		Args:    noArgs,
	}
	o.addFlags(cmd.Flags(), false)
	cmd.Flags().DurationVar(&o.watch, "interval", time.Second, "refresh interval")
	cmd.Flags().IntVarP(&views, "count", "n", 0,
		"stop after this number of refreshes (default: no limit)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.checkWatch("interval"); err != nil {
			return err
		}
		if views < 0 {
			return usagef("--count %d must not be negative", views)
		}
		ctx, restore, err := quitKey(cmd.Context(), cmd.InOrStdin())
		if err != nil {
			return err
		}
		defer restore()
		out := screen{w: cmd.OutOrStdout()}
		defer out.watchSize()()
		var before *control.Snapshot
		shown := 0
		err = o.each(ctx, cmd, func(s *control.Snapshot) error {
			if before == nil {
				before = s
				return nil
			}
			v := view.MakeTop(before, s)
			before = s
			shown++
			err := out.show(&v, o.json)
			if err == nil && shown == views {
				return io.EOF
			}
			return err
		})
		if err == io.EOF {
			return nil
		}
		return err
	}
	return cmd
}

// screen shows one view after the other. On a terminal, each replaces the previous one and is cut to the terminal's
// size.
type screen struct {
	w  io.Writer
	mu sync.Mutex

	// guarded by mu
	last *view.Top // nil: none yet
}

// termSize is the size of a terminal in characters. Zero means unknown.
type termSize struct{ rows, columns int }

func (s *screen) show(v *view.Top, asJSON bool) error {
	if asJSON {
		return lineJSON(s.w, v)
	}
	if !program.IsTerminal(s.w) {
		return writeTop(s.w, v, termSize{})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = v
	return s.draw()
}

// draw draws the last view. mu must be held.
func (s *screen) draw() error {
	var z termSize
	if f, ok := s.w.(*os.File); ok {
		if ws, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil {
			z = termSize{int(ws.Row), int(ws.Col)}
		}
	}
	var b strings.Builder
	b.WriteString(clearScreen)
	if z.rows > 0 {
		z.rows = max(z.rows-2, 1) // the last two lines are an empty one and "q: quit"
	}
	writeTop(&b, s.last, z)
	b.WriteString("\nq: quit")
	_, err := io.WriteString(s.w, b.String())
	return err
}

// watchSize draws again whenever the terminal's size changes, until stop is called.
func (s *screen) watchSize() (stop func()) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, unix.SIGWINCH)
	go func() {
		for range changed {
			s.mu.Lock()
			if s.last != nil {
				s.draw() // the next call of show returns the error
			}
			s.mu.Unlock()
		}
	}()
	return func() {
		signal.Stop(changed)
		close(changed)
		if s.last != nil {
			fmt.Fprintln(s.w)
		}
	}
}

// userOf returns the user or tenant that owns a connection, or - for an export.
func userOf(c *view.ConnRates) string {
	switch {
	case c.Session == 0:
		return "-" // an export
	case c.Tenant != "":
		return c.Tenant
	}
	uid := strconv.FormatUint(uint64(c.UID), 10)
	if u, err := user.LookupId(uid); err == nil {
		return u.Username
	}
	return uid
}

// topRows is the maximum number of connections shown if the output is not a terminal of known size.
const topRows = 30

// fit shortens text to width characters and marks the cut. It keeps the end of the text, because an address ends with
// the port.
func fit(text string, width int) string {
	if r := []rune(plain.Line(text)); len(r) > width {
		return "…" + string(r[len(r)-width+1:])
	}
	return text
}

// table is rows of text under a heading. Its columns fit a terminal 80 characters wide, until widen widens them.
type table struct {
	rows   [][]string // the heading first
	widths []int      // negative: aligned to the left
	limit  int        // maximum number of lines
}

// widen widens the left-aligned columns in order, one after the other, each to its longest text, by at most extra
// characters in total.
func (t *table) widen(extra int, order ...int) {
	for _, c := range order {
		need := 0
		for _, r := range t.rows {
			need = max(need, utf8.RuneCountInString(r[c]))
		}
		more := min(max(need+t.widths[c], 0), extra)
		t.widths[c] -= more
		extra -= more
	}
}

// write writes at most t.limit lines of at most columns characters; zero columns means no limit. If rows are missing,
// the last line has their number.
func (t *table) write(b *strings.Builder, columns int) {
	shown := t.rows
	if len(shown) > t.limit {
		shown = shown[:t.limit-1]
	}
	for _, r := range shown {
		var line strings.Builder
		for i, w := range t.widths {
			if i > 0 {
				line.WriteByte(' ')
			}
			plain.Fprintf(&line, "%*s", w, fit(r[i], max(w, -w)))
		}
		text := []rune(strings.TrimRight(line.String(), " "))
		if columns > 0 {
			text = text[:min(len(text), columns)]
		}
		b.WriteString(string(text) + "\n")
	}
	if n := len(t.rows) - len(shown); n > 0 {
		plain.Fprintf(b, "and %d more\n", n)
	}
}

// share sets the limits of tables so that they have at most rows lines in total, with an empty line between two tables.
// It shortens the longest table first, and none to less than two lines.
func share(rows int, tables []*table) {
	sum := len(tables) - 1
	for _, t := range tables {
		t.limit = len(t.rows)
		sum += t.limit
	}
	for ; sum > rows; sum-- {
		longest := slices.MaxFunc(tables, func(a, b *table) int { return a.limit - b.limit })
		if longest.limit <= 2 {
			return
		}
		longest.limit--
	}
}

func writeTop(w io.Writer, v *view.Top, z termSize) error {
	queues := table{widths: []int{-15, 5, 10, 10, 10, 10}, rows: [][]string{{"DEVICE", "QUEUE",
		"RX frame/s", "TX frame/s", "RX bit/s", "TX bit/s"}}}
	for _, q := range v.Queues {
		queues.rows = append(queues.rows, []string{q.Device, strconv.Itoa(q.Queue),
			scaled(q.RxPPS), scaled(q.TxPPS), scaled(q.RxBPS), scaled(q.TxBPS)})
	}
	conns := table{widths: []int{-8, -9, -21, 8, 8, 7, 6, 6}, rows: [][]string{{"USER", "PROGRAM",
		"REMOTE", "RX bit/s", "TX bit/s", "OOO/s", "HELD B", "RETX B"}}}
	for _, c := range v.Conns {
		conns.rows = append(conns.rows, []string{userOf(&c), c.Owner, c.Remote, scaled(c.InBPS),
			scaled(c.OutBPS), scaled(c.Ahead), scaled(float64(c.Held)),
			scaled(float64(c.Retrans))})
	}
	drops := table{widths: []int{-15, -40, 10, 10}, rows: [][]string{{"DEVICE", "DROP CAUSE",
		"frames", "frame/s"}}}
	for _, d := range v.Drops {
		drops.rows = append(drops.rows, []string{d.Device, d.Cause, scaled(float64(d.Frames)),
			scaled(d.Rate)})
	}
	extra := max(z.columns-80, 0)
	queues.widen(extra, 0)
	conns.widen(extra, 2, 1, 0)
	drops.widen(extra, 0, 1)
	shown := []*table{&queues, &conns}
	if len(v.Drops) > 0 {
		shown = append(shown, &drops)
	}
	share(cmp.Or(z.rows, math.MaxInt), shown)
	if z.rows == 0 {
		conns.limit = topRows + 2 // with the heading and the line "and N more"
	}
	var b strings.Builder
	for i, t := range shown {
		if i > 0 {
			b.WriteByte('\n')
		}
		t.write(&b, z.columns)
	}
	text := b.String()
	if z.rows > 0 {
		lines := strings.SplitAfter(text, "\n")
		text = strings.Join(lines[:min(len(lines), z.rows)], "")
	}
	_, err := io.WriteString(w, text)
	return err
}
