package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"xwarp/bpf"
	"xwarp/engine/host/ethtool"
	"xwarp/engine/host/ntuple"
	"xwarp/ring"
)

// Report describes an interface for a bug report. Anonymous removes addresses and names.
type Report struct {
	Kernel     string     `json:"kernel" doc:"kernel release"`
	Processor  string     `json:"processor" doc:"architecture: amd64, arm64"`
	Processors int        `json:"processors" doc:"number of CPUs that this process may use"`
	NIC        NIC        `json:"nic" doc:"interface, driver and device"`
	Lines      []Line     `json:"lines" doc:"results of the checks"`
	Measured   []Measured `json:"measured" doc:"transfers with --peer, over AF_XDP and over kernel TCP at this end"`
}

// NIC is an interface as described by its driver.
type NIC struct {
	Name     string   `json:"name" doc:"interface name"`
	Kind     string   `json:"kind" doc:"\"device\", \"veth\", \"vlan\", ..."`
	Driver   string   `json:"driver" doc:"driver name"`
	Version  string   `json:"driver_version" doc:"driver version"`
	Firmware string   `json:"firmware" doc:"firmware version"`
	Bus      string   `json:"bus" doc:"bus address"`
	Device   string   `json:"device" doc:"PCI vendor and device ID, as in lspci -n"`
	Speed    int      `json:"speed" doc:"10^6 bits per second; 0: unknown"`
	MTU      int      `json:"mtu" doc:"MTU in bytes"`
	ZeroCopy bool     `json:"zero_copy" doc:"the driver reports AF_XDP zero-copy support"`
	Segments int      `json:"zero_copy_segments" doc:"maximum buffers per frame with zero-copy"`
	RxQueues int      `json:"rx_queues" doc:"receive queues in use"`
	Combined uint32   `json:"combined_max" doc:"maximum number of combined channels"`
	RxMax    uint32   `json:"rx_max" doc:"maximum number of receive channels"`
	Ring     uint32   `json:"rx_ring" doc:"receive ring entries"`
	RingMax  uint32   `json:"rx_ring_max" doc:"maximum receive ring entries"`
	RSS      []uint32 `json:"rss_queues" doc:"receive queues in the RSS table"`
	Offloads []string `json:"offloads" doc:"enabled features by their ethtool -k names; * marks fixed ones"`
}

// Measured is one transfer with the peer.
type Measured struct {
	What    string  `json:"what" doc:"\"write\" or \"read\": RDMA Writes to the peer, or Reads"`
	By      string  `json:"by" doc:"transport at this end: \"xdp\" or \"kernel\""`
	Bytes   int64   `json:"bytes" doc:"payload bytes"`
	Seconds float64 `json:"seconds" doc:"duration"`
	Rate    float64 `json:"mib_per_s" doc:"rate in 2^20 bytes per second"`
	Error   string  `json:"error,omitempty" doc:"error that ended it early"`
}

// NewReport returns the report on an interface. lines are the results of Look or Fix for it.
func NewReport(name string, lines []Line) (*Report, error) {
	e, done, err := newEnv(Options{Interface: name})
	if err != nil {
		return nil, err
	}
	defer done()
	return &Report{
		Kernel: bpf.Release(), Processor: runtime.GOARCH,
		Processors: runtime.NumCPU(), NIC: e.describe(), Lines: slices.Clone(lines),
		Measured: []Measured{},
	}, nil
}

// describe queries the driver. Fields that it does not report stay empty.
func (e *env) describe() NIC {
	a := e.nic.Attrs()
	n := NIC{Name: a.Name, Kind: e.nic.Type(), MTU: a.MTU, RxQueues: e.receiveQueues(),
		RSS: []uint32{}, Offloads: []string{}}
	if d, err := ethtool.ReadDriver(a.Name); err == nil {
		n.Driver, n.Version, n.Firmware, n.Bus = d.Name, d.Version, d.Firmware, d.Bus
	}
	if d, err := ring.QueryDriver(a.Index); err == nil {
		n.ZeroCopy, n.Segments = d.ZeroCopy, int(d.Segments)
	}
	if c, err := ethtool.ReadChannels(a.Name); err == nil {
		n.Combined, n.RxMax = c.MaxCombined, c.MaxRx
	}
	if now, most, err := ethtool.RxRing(a.Name); err == nil {
		n.Ring, n.RingMax = now, most
	}
	table := ntuple.Table(ntuple.Interface(a.Name))
	slices.Sort(table)
	n.RSS = append(n.RSS, slices.Compact(table)...)
	if f, err := ethtool.Features(a.Name); err == nil {
		for name, f := range f {
			if f.On {
				n.Offloads = append(n.Offloads, map[bool]string{true: "*"}[f.Fixed]+name)
			}
		}
		slices.Sort(n.Offloads)
	}
	if dir := e.sysfs(); dir != "" {
		vendor, device := readID(dir+"device/vendor"), readID(dir+"device/device")
		if vendor != "" && device != "" {
			n.Device = vendor + ":" + device
		}
		if speed, err := readNumber(dir + "speed"); err == nil && speed > 0 {
			n.Speed = int(speed)
		}
	}
	return n
}

// readID reads a PCI ID from a file, without the prefix 0x.
func readID(file string) string {
	text, _ := readSetting(nil, file)
	id, ok := strings.CutPrefix(text, "0x")
	if _, err := strconv.ParseUint(id, 16, 32); !ok || err != nil {
		return ""
	}
	return id
}

var mac = regexp.MustCompile(`(?i)\b([0-9a-f]{2}:){5}[0-9a-f]{2}\b`)

// address matches what may be an IP address, with a port or without one.
var address = regexp.MustCompile(`[0-9A-Fa-f:.]*[:.][0-9A-Fa-f:.]+`)

// hideAddress replaces the IP address in a match of address.
func hideAddress(s string) string {
	text := strings.TrimRight(s, ".:") // of the sentence
	if _, err := netip.ParseAddr(text); err == nil {
		return "ADDRESS" + s[len(text):]
	}
	if at, err := netip.ParseAddrPort(text); err == nil {
		return fmt.Sprintf("ADDRESS:%d%s", at.Port(), s[len(text):])
	}
	return s
}

// Anonymous replaces MAC addresses, IP addresses, the host's name, and the names in others, in the results of the
// checks and in errors.
func (r *Report) Anonymous(others ...string) error {
	names := map[string]string{}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	names[host] = "HOST"
	for _, o := range others {
		names[o] = "PEER"
	}
	known := make([]string, 0, len(names))
	for n := range names {
		if n != "" {
			known = append(known, regexp.QuoteMeta(n))
		}
	}
	// Longer names first: a name may be a prefix of another.
	slices.SortFunc(known, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	word := regexp.MustCompile(`(^|[^\w.:])(` + strings.Join(known, "|") + `)($|[^\w.]|\.$)`)
	scrub := func(s *string) {
		*s = mac.ReplaceAllString(*s, "MAC")
		*s = word.ReplaceAllStringFunc(*s, func(m string) string {
			parts := word.FindStringSubmatch(m)
			return parts[1] + names[parts[2]] + parts[3]
		})
		*s = address.ReplaceAllStringFunc(*s, hideAddress)
	}
	for i := range r.Lines {
		l := &r.Lines[i]
		for _, s := range []*string{&l.What, &l.Remedy, &l.Error} {
			scrub(s)
		}
	}
	for i := range r.Measured {
		scrub(&r.Measured[i].Error)
	}
	return nil
}
