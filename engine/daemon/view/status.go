// Package view builds the operator's view of a daemon: the JSON objects of xwarp's commands and of the status page,
// which have the same keys. The doc tags of the fields are their documentation.
package view

import (
	"maps"
	"slices"
	"time"

	"xwarp/bpf"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/counters"
)

// Status is the output of `xwarp status`.
type Status struct {
	Schema  int     `json:"schema" doc:"version of this layout, 1"`
	Command string  `json:"command" doc:"\"status\""`
	Version string  `json:"version" doc:"of the daemon"`
	Pid     int     `json:"pid" doc:"of the daemon"`
	Uptime  float64 `json:"uptime_seconds" doc:"time since the daemon started"`
	// Replaced and Pending say why a restart is needed.
	Replaced bool     `json:"replaced,omitempty" doc:"the file of xwarpd was replaced after its start, as an upgrade does: a restart runs the new one"`
	Pending  []string `json:"pending" doc:"configuration keys whose changes a restart of xwarpd applies"`
	Devices  []Device `json:"devices" doc:"the daemon's devices"`
	Exports  []Export `json:"exports" doc:"memory that peers access without a local program"`
	Objects  Objects  `json:"objects" doc:"objects of programs that this user may see"`
	// Unconfirmed is set while the daemon waits for a confirmation.
	Unconfirmed float64 `json:"unconfirmed_seconds,omitempty" doc:"time until xwarpd shuts down unless confirmed (xwarp confirm)"`
}

// Device is one device.
type Device struct {
	Device    string   `json:"device" doc:"its name"`
	Transport string   `json:"transport" doc:"\"xdp\" or \"kernel\""`
	XDPMode   string   `json:"xdp_mode,omitempty" doc:"\"native\" or \"generic\""`
	Transmit  string   `json:"transmit,omitempty" doc:"transmit path: \"xdp\" or \"packet-gso\""`
	Way       string   `json:"way,omitempty" doc:"current transmit path and packet size, and why"`
	Copy      string   `json:"copy,omitempty" doc:"\"copy\" or \"zero-copy\""`
	MTU       int      `json:"mtu,omitempty" doc:"largest IP packet in bytes"`
	Queues    int      `json:"queues,omitempty" doc:"queues served"`
	Addresses []string `json:"addresses" doc:"IP addresses of its interface, without link-local ones"`
	RxFrames  uint64   `json:"rx_frames" doc:"frames received"`
	TxFrames  uint64   `json:"tx_frames" doc:"frames sent"`
	Offered   uint64   `json:"rx_offered,omitempty" doc:"target number of receive chunks in the kernel under load, sum of all queues"`
	Grown     uint64   `json:"rx_grown,omitempty" doc:"times that this target was raised"`
	In        uint64   `json:"rdma_rx_bytes" doc:"message bytes placed, all connections so far"`
	Out       uint64   `json:"rdma_tx_bytes" doc:"message bytes sent, all connections so far"`
	Retrans   uint64   `json:"retransmitted_bytes" doc:"TCP bytes retransmitted"`
	Dropped   []Drop   `json:"dropped" doc:"frames dropped, by cause"`
	Partial   uint64   `json:"partial_checksum_frames" doc:"frames dropped because their checksum covers the pseudo-header only"`
	Unowned   uint64   `json:"unowned,omitempty" doc:"frames of xwarp connections dropped because they arrived on unserved queues"`
	Lost      []int    `json:"unowned_queues" doc:"these queues"`
	Fallback  string   `json:"fallback,omitempty" doc:"why native mode is unavailable"`
	Copied    string   `json:"no_zero_copy,omitempty" doc:"why ring mode auto does not use zero-copy"`
	BusyPoll  string   `json:"busy_poll,omitempty" doc:"\"on\": the workers poll the NIC; else why not"`
	Link      string   `json:"link,omitempty" doc:"state of the interface: \"up\", \"down\", \"no-carrier\" or \"gone\""`
	Since     string   `json:"link_since,omitempty" doc:"time of the last change of link; absent if it never changed"`
	Missing   []string `json:"missing_addresses" doc:"addresses removed from the host that connections and listeners still need"`
	Reopened  uint64   `json:"reopened" doc:"times that the device was reopened after a failure or the loss of its interface"`
	Health    string   `json:"health,omitempty" doc:"kernel state that the device can no longer follow"`
	IPsec     *IPsec   `json:"ipsec,omitempty" doc:"security associations, with [[interface.ipsec]]"`
	Mapper    string   `json:"port_mapper,omitempty" doc:"why the iWARP port mapper is not running, if enabled"`
	Error     string   `json:"error,omitempty" doc:"why counters are unavailable"`
}

// IPsec is the security associations of a device.
type IPsec struct {
	In         int      `json:"sas_in" doc:"current inbound SAs; only for the operator"`
	Out        int      `json:"sas_out" doc:"current outbound SAs; only for the operator"`
	PacketsIn  uint64   `json:"rx_packets" doc:"packets received that passed the integrity and replay checks"`
	BytesIn    uint64   `json:"rx_bytes" doc:"their payload bytes"`
	PacketsOut uint64   `json:"tx_packets" doc:"packets sent"`
	BytesOut   uint64   `json:"tx_bytes" doc:"their payload bytes"`
	Replayed   uint64   `json:"replayed" doc:"packets that were replayed, or older than the replay window"`
	Forged     uint64   `json:"forged" doc:"packets with a wrong integrity check value"`
	Rekeys     uint64   `json:"rekeys" doc:"times that sending switched to another SA"`
	Refused    uint64   `json:"refused_sas" doc:"SAs that cannot be used"`
	Waiting    []string `json:"waiting" doc:"hosts to which packets wait for an SA"`
	Error      string   `json:"error,omitempty" doc:"last error: an SA was refused, or a request failed"`
	ErrorAt    string   `json:"error_at,omitempty" doc:"time of this error"`
}

func makeIPsec(s *control.IPsecState) *IPsec {
	if s == nil {
		return nil
	}
	c := s.Counters
	v := &IPsec{PacketsIn: counters.ESPPackets[0].Of(c), BytesIn: counters.ESPBytes[0].Of(c),
		PacketsOut: counters.ESPPackets[1].Of(c), BytesOut: counters.ESPBytes[1].Of(c),
		Replayed: counters.ESPReplayed.Of(c), Forged: counters.ESPForged.Of(c),
		Rekeys: counters.ESPRekeys.Of(c), Refused: counters.RefusedSAs.Of(c), Waiting: []string{},
		Error: s.Error}
	v.In, v.Out = s.Count()
	for _, a := range s.Waiting {
		v.Waiting = append(v.Waiting, a.String())
	}
	if s.Error != "" {
		v.ErrorAt = s.ErrorAt.Format(time.RFC3339)
	}
	return v
}

// Drop is one cause of dropped frames.
type Drop struct {
	Cause  string `json:"cause" doc:"as in xwarp_dropped_frames_total; drop_peer, drop_syn, drop_stray and drop_clear: in xwarp_steering_frames_total"`
	Frames uint64 `json:"frames" doc:"since the daemon started"`
}

// Export is memory that peers access without a local program.
type Export struct {
	Export      string `json:"export" doc:"its name"`
	Device      string `json:"device" doc:"its device"`
	Listen      string `json:"listen" doc:"address; \":7174\" is all of IPv4 and IPv6"`
	Serve       string `json:"serve" doc:"\"memory\" or \"directory\""`
	Memory      string `json:"memory,omitempty" doc:"\"anonymous\", \"hugepages\" or \"file\"; absent for a directory"`
	Size        int64  `json:"size" doc:"bytes; of a directory: its limit, 0 for none"`
	Used        int64  `json:"used" doc:"directory: bytes of its files"`
	Access      string `json:"access" doc:"rights of peers"`
	Connections int    `json:"connections" doc:"now"`
	Rejected    uint64 `json:"rejected" doc:"connections"`
	Puts        uint64 `json:"puts" doc:"directory: files stored by peers"`
	PutBytes    uint64 `json:"put_bytes" doc:"directory: bytes of these"`
	Gets        uint64 `json:"gets" doc:"directory: files fetched by peers"`
	GetBytes    uint64 `json:"get_bytes" doc:"directory: bytes of these"`
	Failed      uint64 `json:"failed" doc:"directory: requests that were refused or aborted"`
	Error       string `json:"error,omitempty" doc:"why it failed, or cannot be opened yet"`
}

// Objects counts the objects of programs.
type Objects struct {
	Sessions  int `json:"session" doc:"programs connected to the daemon"`
	PDs       int `json:"pd" doc:"protection domains"`
	MRs       int `json:"mr" doc:"memory regions"`
	MWs       int `json:"mw" doc:"memory windows"`
	CQs       int `json:"cq" doc:"completion queues"`
	SRQs      int `json:"srq" doc:"shared receive queues"`
	QPs       int `json:"qp" doc:"queue pairs"`
	Listeners int `json:"listener" doc:"listeners of programs"`
}

// CountObjects counts the objects of programs in a snapshot.
func CountObjects(s *control.Snapshot) Objects {
	return Objects{len(s.Sessions), len(s.PDs), len(s.MRs), len(s.MWs), len(s.CQs),
		len(s.SRQs), len(s.QPs), len(s.Listeners)}
}

// MakeStatus converts a snapshot.
func MakeStatus(s *control.Snapshot) Status {
	v := Status{
		Schema: 1, Command: "status", Version: s.Version, Pid: s.Pid, Uptime: s.Uptime,
		Devices: []Device{}, Exports: []Export{}, Objects: CountObjects(s),
		Unconfirmed: s.Unconfirmed, Replaced: s.Replaced, Pending: append([]string{}, s.Pending...),
	}
	for i := range s.Devices {
		v.Devices = append(v.Devices, makeDevice(&s.Devices[i]))
	}
	for _, e := range s.Exports {
		t := e.Transfers
		v.Exports = append(v.Exports, Export{
			e.Name, e.Device, e.Listen, e.Serve, e.Memory, e.Size, e.Used, e.Access, e.Connections,
			e.Rejected,
			counters.Puts.Of(t), counters.PutBytes.Of(t), counters.Gets.Of(t),
			counters.GetBytes.Of(t), counters.Failed.Of(t), e.Error,
		})
	}
	return v
}

func makeDevice(d *control.DeviceState) Device {
	v := Device{
		Device: d.Name, Transport: d.Transport, XDPMode: d.XDPMode,
		Transmit: d.Transmit, Way: d.Way, Copy: d.Copy, MTU: d.MTU, Queues: d.Queues,
		Unowned: d.Steering[bpf.DropNoSocket.String()],
		Lost:    append([]int{}, slices.Sorted(maps.Keys(d.Unowned))...), Dropped: []Drop{},
		Fallback: d.Fallback, Copied: d.NoZeroCopy, BusyPoll: d.BusyPoll,
		Health: d.Health, Error: d.Error,
	}
	v.IPsec = makeIPsec(d.IPsec)
	v.Missing, v.Reopened, v.Addresses = []string{}, d.Reopened, []string{}
	for _, a := range d.Addresses {
		v.Addresses = append(v.Addresses, a.String())
	}
	if l := d.Link; l != nil {
		v.Link = l.State
		if !l.Since.IsZero() {
			v.Since = l.Since.Format(time.RFC3339)
		}
		for _, a := range l.Missing {
			v.Missing = append(v.Missing, a.String())
		}
	}
	if p := d.PortMapper; p != nil {
		v.Mapper = p.Error
	}
	if t := d.Totals; t != nil {
		v.In, v.Out = counters.PayloadIn.Of(t.RDMA), counters.PayloadOut.Of(t.RDMA)
		v.Retrans = counters.RetransBytes.Of(t.TCP)
	}
	for i := range d.Workers {
		w := &d.Workers[i]
		v.RxFrames += counters.RxFrames.Of(w.Stack)
		v.TxFrames += counters.TxFrames.Of(w.Stack)
		v.Partial += counters.PartialSums.Of(w.Stack)
		v.Offered += counters.RxOffered.Of(w.Ring)
		v.Grown += counters.RxGrown.Of(w.Ring)
	}
	drops := Drops(d)
	for _, cause := range slices.Sorted(maps.Keys(drops)) {
		if n := drops[cause]; n > 0 {
			v.Dropped = append(v.Dropped, Drop{cause, n})
		}
	}
	return v
}

// Drops sums the frames that the workers of a device dropped, and those that the steering program dropped because of
// the peer or a rate limit.
func Drops(d *control.DeviceState) map[string]uint64 {
	sum := map[string]uint64{}
	for _, o := range []bpf.Outcome{bpf.DropPeer, bpf.DropSYN, bpf.DropStray, bpf.DropClear} {
		if n := d.Steering[o.String()]; n > 0 {
			sum[o.String()] = n
		}
	}
	for i := range d.Workers {
		for cause, n := range counters.Drops(d.Workers[i].Stack, d.Workers[i].Ring) {
			sum[cause] += n
		}
	}
	return sum
}
