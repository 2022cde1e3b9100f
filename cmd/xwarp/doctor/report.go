package doctor

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"

	"xwarp/bpf"
	"xwarp/engine/host/ethtool"
	"xwarp/engine/host/ntuple"
	"xwarp/ring"
)

// Report describes an interface to somebody who does not have it. It names no MAC address, no IP address and no host,
// unless asked to.
type Report struct {
	Kernel     string     `json:"kernel" doc:"release"`
	Processor  string     `json:"processor" doc:"as Go calls it: amd64, arm64"`
	Processors int        `json:"processors" doc:"that this process may use"`
	NIC        NIC        `json:"nic" doc:"the interface, its driver and its device"`
	Lines      []Line     `json:"lines" doc:"what doctor tried and found"`
	Measured   []Measured `json:"measured" doc:"transfers with --peer: this end by AF_XDP, and by the kernel's TCP"`
}

// NIC is an interface as its driver describes it.
type NIC struct {
	Name      string   `json:"name" doc:"of the interface"`
	Kind      string   `json:"kind" doc:"\"device\", \"veth\", \"vlan\", ..."`
	Driver    string   `json:"driver" doc:"of the device"`
	Version   string   `json:"driver_version" doc:"of the driver"`
	Firmware  string   `json:"firmware" doc:"of the device"`
	Bus       string   `json:"bus" doc:"where the device is"`
	Device    string   `json:"device" doc:"vendor and device on a PCI bus, as lspci -n has them"`
	Speed     int      `json:"speed" doc:"10^6 bits a second; 0: unknown"`
	MTU       int      `json:"mtu" doc:"bytes of an IP packet"`
	ZeroCopy  bool     `json:"zero_copy" doc:"the driver says that it binds AF_XDP sockets without copying"`
	Segments  int      `json:"zero_copy_segments" doc:"buffers that a frame may have then"`
	LiveFrame bool     `json:"live_frames" doc:"the driver takes XDP frames for transmit now"`
	RxQueues  int      `json:"rx_queues" doc:"receive queues in use"`
	Combined  uint32   `json:"combined_max" doc:"channels for both directions that the device may have"`
	RxMax     uint32   `json:"rx_max" doc:"channels for reception that the device may have"`
	Ring      uint32   `json:"rx_ring" doc:"entries of a receive ring"`
	RingMax   uint32   `json:"rx_ring_max" doc:"that it may have"`
	RSS       []uint32 `json:"rss_queues" doc:"receive queues in the table of RSS"`
	Offloads  []string `json:"offloads" doc:"what is on, by the names of ethtool -k; with * in front what cannot be switched"`
}

// Measured is one transfer with the peer.
type Measured struct {
	What    string  `json:"what" doc:"\"put\" or \"get\""`
	By      string  `json:"by" doc:"this end: \"xdp\" or \"kernel\""`
	Bytes   int64   `json:"bytes" doc:"of payload"`
	Seconds float64 `json:"seconds" doc:"that they took"`
	Rate    float64 `json:"mib_per_s" doc:"2^20 bytes"`
	Error   string  `json:"error,omitempty" doc:"why it ended early"`
}

// NewReport describes the interface; lines are the results of Look or Fix for it.
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

// describe asks the driver. Fields that the driver does not report stay empty.
func (e *env) describe() NIC {
	a := e.nic.Attrs()
	n := NIC{Name: a.Name, Kind: e.nic.Type(), MTU: a.MTU, RxQueues: e.receiveQueues(),
		RSS: []uint32{}, Offloads: []string{}}
	if d, err := ethtool.ReadDriver(a.Name); err == nil {
		n.Driver, n.Version, n.Firmware, n.Bus = d.Name, d.Version, d.Firmware, d.Bus
	}
	if d, err := ring.QueryDriver(a.Index); err == nil {
		n.ZeroCopy, n.Segments, n.LiveFrame = d.ZeroCopy, int(d.Segments), d.Transmits
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

// readID is a number of a PCI device, without the 0x in front.
func readID(file string) string {
	b, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		return ""
	}
	id, ok := strings.CutPrefix(strings.TrimSpace(string(b)), "0x")
	if _, err := strconv.ParseUint(id, 16, 32); !ok || err != nil {
		return ""
	}
	return id
}

var mac = regexp.MustCompile(`(?i)\b([0-9a-f]{2}:){5}[0-9a-f]{2}\b`)

// Anonymous removes the host's name and the names in others from the texts.
func (r *Report) Anonymous(others ...string) error {
	names := map[string]string{}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	names[host] = "HOST"
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("this host's addresses: %w", err)
	}
	for _, a := range addrs {
		names[a.IP.String()] = "ADDRESS"
	}
	for _, o := range others {
		names[o] = "PEER"
	}
	known := make([]string, 0, len(names))
	for n := range names {
		if n != "" {
			known = append(known, regexp.QuoteMeta(n))
		}
	}
	// Of two names that begin alike the longer is meant.
	slices.SortFunc(known, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	word := regexp.MustCompile(`(^|[^\w.:])(` + strings.Join(known, "|") + `)($|[^\w.]|\.$)`)
	scrub := func(s *string) {
		*s = mac.ReplaceAllString(*s, "MAC")
		*s = word.ReplaceAllStringFunc(*s, func(m string) string {
			parts := word.FindStringSubmatch(m)
			return parts[1] + names[parts[2]] + parts[3]
		})
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
