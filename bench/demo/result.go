package demo

import (
	"xwarp/engine/verbs"
)

// Schema is the version of Result's JSON form. It increases when a key changes its meaning or is removed, not when a
// key is added.
const Schema = 1

// Result is the outcome of a run. The doc tags are the documentation of the JSON keys.
type Result struct {
	Schema      int          `json:"schema" doc:"version of this layout, 1"`
	Command     string       `json:"command" doc:"\"demo\""`
	OK          bool         `json:"ok" doc:"all bytes arrived unchanged"`
	Error       string       `json:"error,omitempty" doc:"the failure; absent when ok"`
	Seed        uint64       `json:"seed" doc:"seed of the data and of the relay's choices, for --seed"`
	Bytes       int64        `json:"bytes" doc:"moved by each verb"`
	MTU         int          `json:"mtu" doc:"of every link, bytes of an IP packet"`
	IPVersion   int          `json:"ip_version" doc:"4 or 6"`
	A           End          `json:"a" doc:"the host that starts the connection and all transfers"`
	B           End          `json:"b" doc:"the other host"`
	MPA         MPA          `json:"mpa" doc:"the negotiated parameters"`
	IPsec       *IPsec       `json:"ipsec,omitempty" doc:"how the connection was encrypted; absent without --ipsec"`
	Impairments *Impairments `json:"impairments,omitempty" doc:"the requested impairments of both directions; absent without relay"`
	Verbs       []Transfer   `json:"verbs" doc:"in the order in which they ran"`
	AToB        Direction    `json:"a_to_b" doc:"stream from A to B: RDMA Write, Read Requests, Send"`
	BToA        Direction    `json:"b_to_a" doc:"stream from B to A: Read Responses"`
	Capture     *Capture     `json:"capture,omitempty" doc:"the pcapng file; absent without --pcap"`
}

// End is one host.
type End struct {
	Address string `json:"address" doc:"address and port"`
	XDPMode string `json:"xdp_mode" doc:"\"native\" or \"generic\""`
	Copy    string `json:"copy" doc:"\"copy\" or \"zero-copy\""`
}

// MPA holds the parameters that the MPA start-up agreed on.
type MPA struct {
	Revision int  `json:"revision" doc:"1 (RFC 5044) or 2 (RFC 6581)"`
	Markers  bool `json:"markers" doc:"in both directions"`
	CRC      bool `json:"crc" doc:"CRC32C in every FPDU"`
}

// Transfer is one transfer of the demo, by one verb.
type Transfer struct {
	Name          string  `json:"verb" doc:"\"RDMA Write\", \"RDMA Read\" or \"Send\""`
	Bytes         int64   `json:"bytes" doc:"of payload"`
	Seconds       float64 `json:"seconds" doc:"from the first post to the last completion"`
	GbitPerSecond float64 `json:"gbit_per_s" doc:"payload, 10^9 bits"`
	MiBPerSecond  float64 `json:"mib_per_s" doc:"payload, 2^20 bytes"`
	SourceSHA256  string  `json:"source_sha256" doc:"of the memory that was sent"`
	TargetSHA256  string  `json:"target_sha256" doc:"of the memory that received"`
	OK            bool    `json:"ok" doc:"both are equal"`
}

func (v *Transfer) rate() {
	if v.Seconds > 0 {
		v.GbitPerSecond = float64(v.Bytes) * 8 / 1e9 / v.Seconds
		v.MiBPerSecond = float64(v.Bytes) / (1 << 20) / v.Seconds
	}
}

// Direction is the byte stream of the connection in one direction: counters of its sender's TCP, and of TCP and MPA at
// its receiver.
type Direction struct {
	Segments        uint64 `json:"segments" doc:"data segments sent for the first time"`
	Retransmissions uint64 `json:"retransmissions" doc:"segments retransmitted"`
	Timeouts        uint64 `json:"timeouts" doc:"retransmission timeouts"`
	Exceptions      uint64 `json:"alignment_exceptions" doc:"segments that did not begin with an FPDU or did not end with one, by the sender's decision"`
	SegmentSize     int    `json:"segment_size" doc:"bytes that one segment may carry, at the end of the run"`
	BlackHoles      uint64 `json:"path_mtu_black_holes" doc:"times that the sender lowered its path MTU because full-sized segments were lost"`

	OutOfOrder    uint64 `json:"segments_out_of_order" doc:"ranges that the receiving TCP kept beyond a gap"`
	FPDUs         uint64 `json:"fpdus" doc:"FPDUs received, CRC right"`
	InOrder       uint64 `json:"fpdus_in_order" doc:"of these, placed in order"`
	ByMarker      uint64 `json:"fpdus_placed_by_marker" doc:"placed behind a gap, their start found by a marker"`
	ByChain       uint64 `json:"fpdus_placed_by_chain" doc:"placed behind a gap, their start found by the preceding FPDU"`
	Held          uint64 `json:"held" doc:"pieces behind a gap held in a buffer: no FPDU start known, or not placeable out of order"`
	Unaligned     uint64 `json:"segments_unaligned" doc:"segments that began inside an FPDU when they arrived"`
	CRCDrops      uint64 `json:"crc_drops" doc:"FPDUs with a wrong CRC, which the peer retransmitted"`
	HeldHighWater int    `json:"held_bytes_high_water" doc:"maximum number of bytes held by MPA"`

	Relay *Relay `json:"relay,omitempty" doc:"the relay's counters for this direction; absent without relay"`
}

// Relay counts the frames that the relay lost, delayed or changed in one direction.
type Relay struct {
	In         uint64 `json:"in" doc:"frames received"`
	Out        uint64 `json:"out" doc:"frames sent"`
	Lost       uint64 `json:"lost" doc:"packets dropped on purpose"`
	Overflow   uint64 `json:"overflow" doc:"packets dropped because the queue was full"`
	Duplicated uint64 `json:"duplicated" doc:"packets sent twice"`
	Reordered  uint64 `json:"reordered" doc:"packets sent after a later one"`
	Corrupted  uint64 `json:"corrupted" doc:"segments with changed bytes"`
	RecutIn    uint64 `json:"recut_in" doc:"segments taken apart"`
	RecutOut   uint64 `json:"recut_out" doc:"segments built from them"`
}

// Capture is the file that was written.
type Capture struct {
	File    string `json:"file" doc:"its name"`
	Packets uint64 `json:"packets" doc:"recorded, both directions, at host A"`
	Bytes   uint64 `json:"bytes" doc:"size of the file"`
}

// PlacedShare returns the share of the data behind gaps that was placed on arrival: FPDUs placed, divided by FPDUs
// placed and pieces held. It returns false if no data arrived behind a gap.
func (d *Direction) PlacedShare() (float64, bool) {
	placed := d.ByMarker + d.ByChain
	if placed+d.Held == 0 {
		return 0, false
	}
	return float64(placed) / float64(placed+d.Held), true
}

// direction combines the counters of both ends of a stream.
func direction(sender, receiver *verbs.ConnInfo) (d Direction) {
	if t := sender.TCP; t != nil {
		l := t.Info.Loss.Counters
		d.Segments, d.Retransmissions, d.Timeouts = l.Sent, l.Retransmitted, l.Timeouts
		d.SegmentSize, d.BlackHoles = t.SndMSS, t.BlackHoles
		d.Exceptions = t.SplitEMSS + t.SplitWindow + t.SplitRetransmit
	}
	if t := receiver.TCP; t != nil {
		d.OutOfOrder = t.OutOfOrder
	}
	m := &receiver.MPA
	d.FPDUs, d.InOrder, d.ByMarker, d.ByChain = m.FPDUs, m.InOrder, m.OutByMarker, m.OutByChain
	d.Held, d.Unaligned = m.HeldWhole+m.Unknown, m.Unaligned
	d.CRCDrops, d.HeldHighWater = m.CRCDrops, m.HeldHighWater
	return d
}
