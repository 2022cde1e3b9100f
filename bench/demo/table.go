package demo

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"xwarp/engine/plain"
)

// WriteTable writes the result to w as text tables.
func (r *Result) WriteTable(w io.Writer) error {
	t := table{tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)}
	t.head(r)
	if len(r.Verbs) > 0 {
		t.verbs(r.Verbs)
		t.directions(&r.AToB, &r.BToA)
	}
	if c := r.Capture; c != nil {
		t.row("")
		t.row("capture", fmt.Sprintf("%s, %s of %s at host A", c.File,
			plain.Size(c.Bytes), plain.Count(c.Packets, "packet")))
	}
	return t.Flush()
}

type table struct{ *tabwriter.Writer }

// row writes one line of cells. The lines up to the next empty one form a block, whose columns are aligned.
func (t table) row(cells ...any) {
	fmt.Fprintf(t, strings.Repeat("\t%v", len(cells))[1:]+"\n", cells...)
}

func (t table) head(r *Result) {
	path := "A " + cmp.Or(r.A.Address, "?") + " ── veth ── " + cmp.Or(r.B.Address, "?") + " B"
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
			plain.OnOff(r.MPA.Markers), plain.OnOff(r.MPA.CRC)))
	}
	if i := r.IPsec; i != nil {
		t.row("IPsec", fmt.Sprintf("%s, %s mode: frames of ESP %d, of TCP %d", i.Algorithm, i.Mode,
			i.ESP, i.TCP))
	}
	if i := r.Impairments; i != nil {
		t.row("relay", i.String())
	}
	t.row("seed", r.Seed)
}

// both returns the AF_XDP modes of ends e and o as text, only once if they are equal.
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
	for _, f := range i.fractions() {
		if f.v > 0 {
			s = append(s, fmt.Sprintf("%s %g", f.name, f.v))
		}
	}
	if i.Resegment {
		s = append(s, "resegment")
	}
	return strings.Join(s, ", ")
}

func (t table) verbs(verbs []Transfer) {
	t.row("")
	t.row("verb", "bytes", "seconds", "Gbit/s", "MiB/s", "SHA-256 of source and target")
	for _, v := range verbs {
		verdict := "equal     " + short(v.SourceSHA256)
		if !v.OK {
			verdict = "DIFFERENT " + short(v.SourceSHA256) + " / " + short(v.TargetSHA256)
		}
		t.row(v.Name, v.Bytes, fmt.Sprintf("%.3f", v.Seconds),
			fmt.Sprintf("%.2f", v.GbitPerSecond),
			fmt.Sprintf("%.0f", v.MiBPerSecond), verdict)
	}
}

func (t table) directions(a, b *Direction) {
	t.row("")
	t.row("stream", "A to B", "B to A")
	t.row("segments sent", a.Segments, b.Segments)
	t.row("segments retransmitted", a.Retransmissions, b.Retransmissions)
	t.row("bytes per segment, final", a.SegmentSize, b.SegmentSize)
	t.row("path MTU lowered", a.BlackHoles, b.BlackHoles)
	t.row("alignment exceptions", a.Exceptions, b.Exceptions)
	t.row("unaligned on arrival", a.Unaligned, b.Unaligned)
	t.row("FPDUs placed in order", a.InOrder, b.InOrder)
	t.row("FPDUs placed out of order", a.ByMarker+a.ByChain, b.ByMarker+b.ByChain)
	t.row("  found by a marker", a.ByMarker, b.ByMarker)
	t.row("  found by the preceding FPDU", a.ByChain, b.ByChain)
	t.row("held until in order", a.Held, b.Held)
	t.row("placed on arrival behind a gap", a.share(), b.share())
	t.row("CRC drops", a.CRCDrops, b.CRCDrops)
	t.row("held bytes, maximum", a.HeldHighWater, b.HeldHighWater)
	if a.Relay == nil || b.Relay == nil {
		return
	}
	t.row("")
	t.row("relay", "A to B", "B to A")
	x, y := a.Relay, b.Relay
	t.row("frames in", x.In, y.In)
	t.row("frames out", x.Out, y.Out)
	t.row("lost", x.Lost, y.Lost)
	t.row("reordered", x.Reordered, y.Reordered)
	t.row("duplicated", x.Duplicated, y.Duplicated)
	t.row("corrupted", x.Corrupted, y.Corrupted)
	t.row("re-cut, in", x.RecutIn, y.RecutIn)
	t.row("re-cut, out", x.RecutOut, y.RecutOut)
	t.row("dropped, queue full", x.Overflow, y.Overflow)
}

func (d *Direction) share() string {
	s, ok := d.PlacedShare()
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*s)
}

func short(sha string) string { return sha[:min(16, len(sha))] }
