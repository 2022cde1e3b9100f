// Package counters lists all counters of a daemon. For each it has the key in snapshots and JSON, the unit, the
// meaning, and the Prometheus metric. It reads the list from counters.txt.
package counters

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Counter is one counter of an object.
type Counter struct {
	Key     string // the field's name in snake case
	Unit    string // what it counts: bytes, frames, events and so on
	Meaning string
	Metric  string // name in Prometheus; empty if it is not exported
	Cause   string // value of the label "cause", if several counters share the metric
}

// Values are the counters of one object by their keys.
type Values = map[string]uint64

// Of returns the value of c in v.
func (c *Counter) Of(v Values) uint64 { return v[c.Key] }

// Table is the counters of one kind of object.
type Table []Counter

// named returns the counter with a key. It panics if the table has none.
func (t Table) named(key string) *Counter {
	for i := range t {
		if t[i].Key == key {
			return &t[i]
		}
	}
	panic(fmt.Sprintf("there is no counter %q", key))
}

//go:embed counters.txt
var text string

var tables = parse(text)

// The tables. counters.txt names the Go type whose fields a table describes.
var (
	Stack     = tables["stack"]
	Listen    = tables["listen"]
	Ring      = tables["ring"]
	Contained = tables["contained"]
	Transfer  = tables["transfer"]
	Watch     = tables["watch"]
	Link      = tables["link"]
	IPsec     = tables["ipsec"]
	PortMap   = tables["port_mapper"]
	Daemon    = tables["daemon"]
	RDMA      = tables["rdma"]
	MPA       = tables["mpa"]
	TCP       = tables["tcp"]
)

// ByPart returns the table with a name such as "tcp". It returns nil for "steering", whose counters have no table.
func ByPart(part string) Table { return tables[part] }

// All returns all tables, in the order of their names.
func All() (list []Table) {
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		list = append(list, tables[name])
	}
	return list
}

// parse reads the lines of counters.txt.
func parse(text string) map[string]Table {
	tables := map[string]Table{}
	name := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		f := strings.Split(line, "|")
		for i := range f {
			f[i] = strings.TrimSpace(f[i])
		}
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			name = strings.Trim(line, "[]")
		case len(f) != 4:
			panic("counters.txt: not four columns: " + line)
		default:
			metric, cause, _ := strings.Cut(f[2], " ")
			tables[name] = append(tables[name], Counter{
				Key: f[0], Unit: f[1], Meaning: f[3],
				Metric: strings.TrimPrefix(metric, "-"), Cause: cause,
			})
		}
	}
	return tables
}

// Counters that other packages use one by one.
var (
	RxFrames = Stack.named("rx_frames")
	RxBytes  = Stack.named("rx_bytes")
	TxFrames = Stack.named("tx_frames")
	TxBytes  = Stack.named("tx_bytes")

	PartialSums = Stack.named("drop_partial_sum")

	RxOffered = Ring.named("rx_offered")
	RxGrown   = Ring.named("rx_grown")

	SegmentsIn   = RDMA.named("segments_in")
	SegmentsOut  = RDMA.named("segments_out")
	PayloadIn    = RDMA.named("payload_in")
	PayloadOut   = RDMA.named("payload_out")
	OutByMarker  = MPA.named("out_by_marker")
	OutByChain   = MPA.named("out_by_chain")
	RetransBytes = TCP.named("retransmitted_bytes")

	ESPReplayed = IPsec.named("replayed")
	ESPForged   = IPsec.named("forged")
	ESPRekeys   = IPsec.named("rekeys")
	RefusedSAs  = IPsec.named("refused")
	ESPPackets  = [2]*Counter{IPsec.named("packets_in"), IPsec.named("packets_out")}
	ESPBytes    = [2]*Counter{IPsec.named("bytes_in"), IPsec.named("bytes_out")}

	PeersRefused = Daemon.named("peers_refused")
)

// HeldBytes describes QPState.Held. It is not a counter but the current state of a connection, and its value can fall.
var HeldBytes = &Counter{Key: "held_bytes", Unit: "bytes", Metric: "xwarp_mpa_held_bytes",
	Meaning: "Bytes that wait for what is missing in front of them."}

// Metrics that several counters share.
const (
	dropped  = "xwarp_dropped_frames_total"
	txStalls = "xwarp_ring_tx_stalls_total"
	ahead    = "xwarp_mpa_rx_out_of_order_fpdus_total"
	refused  = "xwarp_ipsec_refused_packets_total"
)

// Help has the help texts of these metrics.
var Help = map[string]string{
	dropped:  "Frames dropped, by cause.",
	txStalls: "Transmit system calls that did not take everything, by state.",
	ahead:    "FPDUs placed behind a gap, by what showed their start.",
	refused:  "ESP packets refused, by cause.",
}

// Drops returns the frames that a worker dropped by cause, as xwarp_dropped_frames_total counts them.
func Drops(stack, ring Values) map[string]uint64 {
	m := map[string]uint64{}
	for t, v := range map[*Table]Values{&Stack: stack, &Ring: ring} {
		for i := range *t {
			if c := &(*t)[i]; c.Metric == dropped {
				m[c.Cause] += c.Of(v)
			}
		}
	}
	return m
}
