package demo

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteTable prints a result for people.
func (r *Result) WriteTable(w io.Writer) error {
	t := table{tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)}
	t.head(r)
	if len(r.Verbs) > 0 {
		t.verbs(r.Verbs)
		t.directions(&r.AToB, &r.BToA)
	}
	if c := r.Capture; c != nil {
		t.row("")
		t.row("capture", fmt.Sprintf("%s, %d packets at host A", c.File, c.Packets))
	}
	return t.Flush()
}

type table struct{ *tabwriter.Writer }

// row prints one line of cells. Lines of one block share columns; an empty line ends a block.
func (t table) row(cells ...string) {
	fmt.Fprintln(t, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
}

func (t table) head(r *Result) {
	path := "A " + orUnknown(r.A.Address) + " ── veth ── " + orUnknown(r.B.Address) + " B"
	if r.Impairments != nil {
		path = strings.Replace(path, "veth", "relay", 1)
	}
	t.row("path", path)
	if r.A.XDPMode != "" {
		t.row("AF_XDP", r.A.both(&r.B))
	}
	t.row("link", fmt.Sprintf("MTU %d, IPv%d", r.MTU, r.IPVersion))
	if r.MPA.Revision != 0 {
		t.row("MPA", fmt.Sprintf("revision %d, markers %s, CRC %s", r.MPA.Revision,
			onOff(r.MPA.Markers), onOff(r.MPA.CRC)))
	}
	if i := r.Impairments; i != nil {
		t.row("relay", i.String())
	}
	t.row("seed", fmt.Sprint(r.Seed))
}

// both names the modes of two ends, once when they are the same.
func (e *End) both(o *End) string {
	a, b := e.XDPMode+", "+e.Copy, o.XDPMode+", "+o.Copy
	if a == b {
		return a
	}
	return fmt.Sprintf("A %s; B %s", a, b)
}

// String lists the impairments that are asked for.
func (i *Impairments) String() string {
	var s []string
	for _, f := range []struct {
		name string
		v    float64
	}{{"loss", i.Loss}, {"reorder", i.Reorder}, {"duplicate", i.Duplicate},
		{"corrupt", i.Corrupt}} {
		if f.v > 0 {
			s = append(s, fmt.Sprintf("%s %g", f.name, f.v))
		}
	}
	if i.Resegment {
		s = append(s, "resegment")
	}
	return strings.Join(s, ", ")
}

func (t table) verbs(verbs []Verb) {
	t.row("")
	t.row("verb", "octets", "seconds", "Gbit/s", "MiB/s", "SHA-256 of source and target")
	for _, v := range verbs {
		verdict := "equal     " + short(v.SourceSHA256)
		if !v.OK {
			verdict = "DIFFERENT " + short(v.SourceSHA256) + " / " + short(v.TargetSHA256)
		}
		t.row(v.Name, fmt.Sprint(v.Octets), fmt.Sprintf("%.3f", v.Seconds),
			fmt.Sprintf("%.2f", v.GbitPerSecond),
			fmt.Sprintf("%.0f", v.MiBPerSecond), verdict)
	}
}

func (t table) directions(a, b *Direction) {
	t.row("")
	t.row("stream", "A to B", "B to A")
	count := func(name string, of func(*Direction) uint64) {
		t.row(name, fmt.Sprint(of(a)), fmt.Sprint(of(b)))
	}
	count("segments sent", func(d *Direction) uint64 { return d.Segments })
	count("sent again", func(d *Direction) uint64 { return d.Retransmissions })
	count("octets per segment, at the end", func(d *Direction) uint64 {
		return uint64(d.SegmentSize)
	})
	count("path MTU lowered", func(d *Direction) uint64 { return d.BlackHoles })
	count("alignment exceptions", func(d *Direction) uint64 { return d.Exceptions })
	count("unaligned on arrival", func(d *Direction) uint64 { return d.Unaligned })
	count("FPDUs placed in order", func(d *Direction) uint64 { return d.InOrder })
	count("FPDUs placed out of order", func(d *Direction) uint64 { return d.ByMarker + d.ByChain })
	count("  found by a marker", func(d *Direction) uint64 { return d.ByMarker })
	count("  found by the FPDU in front", func(d *Direction) uint64 { return d.ByChain })
	count("held until their turn", func(d *Direction) uint64 { return d.Held })
	t.row("placed on arrival behind a gap", a.share(), b.share())
	count("CRC drops", func(d *Direction) uint64 { return d.CRCDrops })
	count("held octets, most ever", func(d *Direction) uint64 { return uint64(d.HeldHighWater) })
	if a.Relay == nil || b.Relay == nil {
		return
	}
	t.row("")
	t.row("relay", "A to B", "B to A")
	relay := func(name string, of func(*Relay) uint64) {
		t.row(name, fmt.Sprint(of(a.Relay)), fmt.Sprint(of(b.Relay)))
	}
	relay("frames in", func(r *Relay) uint64 { return r.In })
	relay("frames out", func(r *Relay) uint64 { return r.Out })
	relay("lost", func(r *Relay) uint64 { return r.Lost })
	relay("reordered", func(r *Relay) uint64 { return r.Reordered })
	relay("duplicated", func(r *Relay) uint64 { return r.Duplicated })
	relay("corrupted", func(r *Relay) uint64 { return r.Corrupted })
	relay("re-cut, in", func(r *Relay) uint64 { return r.RecutIn })
	relay("re-cut, out", func(r *Relay) uint64 { return r.RecutOut })
	relay("dropped, no room", func(r *Relay) uint64 { return r.Overflow })
}

func (d *Direction) share() string {
	s, ok := d.PlacedShare()
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*s)
}

func short(sha string) string { return sha[:min(16, len(sha))] }

func onOff(v bool) string {
	if v {
		return "on"
	}
	return "off"
}

func orUnknown(s string) string {
	if s == "" {
		return "?"
	}
	return s
}
