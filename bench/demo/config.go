package demo

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"xwarp/bench/topo"
	"xwarp/engine/plain"
	"xwarp/ring"
)

// Defaults and limits of Config.
const (
	DefaultSize    = 256 << 20
	DefaultTimeout = 10 * time.Minute
	// MaxSize bounds Size, so that the total size of all regions fits in an int.
	MaxSize = 1 << 40
	// MaxMTU is the largest frame that AF_XDP sends, less an Ethernet header with two VLAN tags.
	MaxMTU = ring.MaxTxSlot*ring.ChunkSize - 22
	// BigCapture is the largest Size whose capture most decoders can still load. A capture holds all three transfers,
	// so three times Size.
	BigCapture = 64 << 20
)

// chunk is the smallest length of a work request in bytes. Only the last request of a verb may be shorter.
const chunk = 1 << 20

// maxRequests bounds the work requests of one verb, because B posts a receive for each of them in advance.
const maxRequests = 4096

// depth is the maximum number of work requests of a verb that are under way at a time.
const depth = 16

// Impairments are what a relay between the hosts does to the frames of both directions. Fractions are from 0 to 1.
type Impairments struct {
	Loss      float64 `json:"loss" doc:"fraction of IP packets that the relay drops, as asked for"`
	Reorder   float64 `json:"reorder" doc:"fraction that it holds back until others have passed"`
	Duplicate float64 `json:"duplicate" doc:"fraction that it sends twice"`
	Corrupt   float64 `json:"corrupt" doc:"fraction of TCP segments with data in which it changes bytes, with a right TCP checksum"`
	Resegment bool    `json:"resegment" doc:"whether it re-cuts and merges TCP segments at random boundaries"`
}

// Any reports whether a relay is needed.
func (i Impairments) Any() bool { return i != Impairments{} }

type fraction struct {
	name string
	v    float64
}

func (i *Impairments) fractions() []fraction {
	return []fraction{{"loss", i.Loss}, {"reorder", i.Reorder}, {"duplicate", i.Duplicate},
		{"corrupt", i.Corrupt}}
}

// Config is the configuration of Run. A zero Size, MTU or Timeout means the default; all other fields apply as they
// are.
type Config struct {
	Size    int64 // bytes moved by each verb
	MTU     int   // of every link; 0: topo.DefaultMTU
	IPv6    bool
	Markers bool // asked for in both directions
	CRC     bool
	IPsec   bool // encrypt the connection by ESP
	Impairments
	Seed    uint64        // seed of the data and of the relay's decisions
	Capture string        // pcapng file of host A's frames, in both directions; empty for none
	Timeout time.Duration // of the whole run
	Log     *slog.Logger  // nil is silent
	// Progress, when set, is called with the number of bytes whose work requests of a verb are complete, and the total.
	// It runs on Run's goroutine.
	Progress func(verb string, done, total int64)
}

// ErrConfig is wrapped by errors about the configuration.
var ErrConfig = errors.New("invalid demo")

// Complete fills in the defaults and reports the first invalid field, or a Size for which memory does not suffice.
func (c *Config) Complete() error {
	if c.Size == 0 {
		c.Size = DefaultSize
	}
	if c.MTU == 0 {
		c.MTU = topo.DefaultMTU
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	for _, f := range c.fractions() {
		if math.IsNaN(f.v) || f.v < 0 || f.v > 1 {
			return fmt.Errorf("%w: %s is %v, want a fraction from 0 to 1 (2 %% is 0.02)",
				ErrConfig, f.name, f.v)
		}
		if f.v == 1 && f.name != "reorder" && f.name != "duplicate" {
			return fmt.Errorf("%w: with %s 1 nothing ever arrives", ErrConfig, f.name)
		}
	}
	switch {
	case c.Size < 0 || c.Size > MaxSize:
		return fmt.Errorf("%w: size %d is not in 1 to %d bytes", ErrConfig, c.Size, int64(MaxSize))
	case c.MTU < topo.MinMTU || c.MTU > MaxMTU:
		return fmt.Errorf("%w: MTU %d is not in %d to %d", ErrConfig, c.MTU, topo.MinMTU, MaxMTU)
	case c.IPsec && (c.Corrupt > 0 || c.Resegment):
		return fmt.Errorf("%w: the relay cannot change encrypted segments: leave out corrupt and "+
			"resegment", ErrConfig)
	case c.Timeout < 0:
		return fmt.Errorf("%w: timeout %v is negative", ErrConfig, c.Timeout)
	}
	return c.checkMemory()
}

// Warnings returns settings that are allowed but may surprise.
func (c *Config) Warnings() (w []string) {
	if c.Capture != "" && c.Size > BigCapture {
		w = append(w, fmt.Sprintf("the capture will hold about %s; for a smaller file, "+
			"add --size 16MiB", plain.Size(3*uint64(c.Size))))
	}
	if c.Corrupt > 0 && !c.CRC {
		w = append(w, "the relay corrupts segments and repairs their TCP checksum: without CRC "+
			"nobody can notice, so wrong bytes will arrive")
	}
	if c.Corrupt > 0 && c.CRC && c.Resegment {
		w = append(w, "with --resegment a part of an FPDU is acknowledged before its CRC can be "+
			"checked; when the relay corrupts such a part, "+
			"TCP will not send it again and the connection ends with MPA's CRC error")
	}
	return w
}

// requestLen returns the length in bytes of each work request; only the last one may be shorter.
func (c *Config) requestLen() int64 {
	n := (c.Size + maxRequests - 1) / maxRequests
	return max(chunk, (n+4095)&^4095)
}
