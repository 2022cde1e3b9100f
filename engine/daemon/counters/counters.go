// Package counters names everything that a daemon counts, once: the key in snapshots and JSON, the unit,
// what it means, and the metric that it becomes.
package counters

import "fmt"

// Unit is what a counter counts.
type Unit string

// The units.
const (
	Octets      Unit = "octets"
	Frames      Unit = "frames"
	Packets     Unit = "packets"
	Segments    Unit = "segments"
	FPDUs       Unit = "FPDUs"
	Messages    Unit = "messages"
	Connections Unit = "connections"
	Events      Unit = "events"
)

// Counter is one counter of an object.
type Counter struct {
	Key     string // the field's name in snake case
	Unit    Unit
	Meaning string
	Metric  string // Prometheus' name; empty: it is none
	Cause   string // label of a metric that several counters share
}

// Values are the counters of one object by their keys.
type Values = map[string]uint64

// Of returns the value.
func (c *Counter) Of(v Values) uint64 { return v[c.Key] }

// Table is the counters of one kind of object.
type Table []Counter

// named returns the counter with a key, which the table has.
func (t Table) named(key string) *Counter {
	for i := range t {
		if t[i].Key == key {
			return &t[i]
		}
	}
	panic(fmt.Sprintf("there is no counter %q", key))
}

// Counters that are shown one by one.
var (
	RxFrames = Stack.named("rx_frames")
	RxOctets = Stack.named("rx_octets")
	TxFrames = Stack.named("tx_frames")
	TxOctets = Stack.named("tx_octets")

	LiveRuns   = Live.named("runs")
	LiveFrames = Live.named("frames")
	LiveSingle = Live.named("single")
	LiveFailed = Live.named("failed")

	PayloadIn     = RDMA.named("payload_in")
	PayloadOut    = RDMA.named("payload_out")
	OutByMarker   = MPA.named("out_by_marker")
	OutByChain    = MPA.named("out_by_chain")
	RetransOctets = TCP.named("retrans_octets")

	SessionsEnded   = Daemon.named("sessions_ended")
	SessionsRefused = Daemon.named("sessions_refused")
	Defects         = Daemon.named("defects")
	SessionsHeldUp  = Daemon.named("sessions_held_up")
	DoorbellRests   = Daemon.named("doorbell_rests")
	PeersRefused    = Daemon.named("peers_refused")

	Puts      = Transfer.named("puts")
	PutOctets = Transfer.named("put_octets")
	Gets      = Transfer.named("gets")
	GetOctets = Transfer.named("get_octets")
	Failed    = Transfer.named("failed")
)

// HeldOctets is a state of a connection, and no counter.
var HeldOctets = &Counter{"held_octets", Octets,
	"Octets that wait for what is missing in front of them.", "xwarp_mpa_held_bytes", ""}

// Help is what a metric that several counters share means.
var Help = map[string]string{
	dropped:  "Frames dropped, by cause.",
	txStalls: "Transmit system calls that did not take everything, by state.",
	ahead:    "FPDUs placed behind a gap, by what showed their start.",
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

// Add adds the counters of another object of the kind.
func Add(sum *Values, v Values) {
	if *sum == nil && len(v) > 0 {
		*sum = make(Values, len(v))
	}
	for key, n := range v {
		(*sum)[key] += n
	}
}
