// Package rping is the ping that rdma-core's rping speaks, over this engine: the client shows a buffer, the
// server reads it by RDMA Read, says go-ahead, is shown a second buffer, writes the data there by RDMA Write
// and says go-ahead again.
//
//	client                                  server
//	  Send {address, STag, size of source} ──►
//	                                  ◄── RDMA Read of the source
//	                                  ◄── Send (go-ahead)
//	  Send {address, STag, size of sink}   ──►
//	                                  ◄── RDMA Write into the sink, of the text with its final zero
//	                                  ◄── Send (go-ahead)
//
// and so on until the client closes. Every Send has 16 bytes; what is in the server's does not count.
package rping

import (
	"fmt"
	"net/netip"
	"time"

	"xwarp/engine/verbs"
)

// Config describes one side. The zero value is rping's default: 64 bytes, until the client is told to stop.
type Config struct {
	Size     int  // bytes of ping data [64]; a server takes any size up to MaxSize
	Count    int  // iterations of the client, 0 for no end; a server goes on until the client closes
	Validate bool // compare every byte, on the server too
	// Ping, when set, is given the data of each iteration without its final zero; it must not keep it.
	Ping func(data []byte)
	// Debug, when set, is told each step.
	Debug func(format string, args ...any)
	// Conn is how a client connects.
	Conn verbs.DialConfig
	// ConnectTimeout bounds a client's connecting. 0: as long as TCP tries.
	ConnectTimeout time.Duration
}

// ErrConfig is the error of a Config.
type ErrConfig string

func (e ErrConfig) Error() string { return string(e) }

// Complete fills in defaults and checks the ranges.
func (c *Config) Complete() error {
	if c.Size == 0 {
		c.Size = DefaultSize
	}
	switch {
	case c.Size < MinSize || c.Size > MaxSize:
		return ErrConfig(fmt.Sprintf("a size of %d bytes: rping takes %d to %d (64 KiB minus 1; "+
			"it refuses 65536 too)", c.Size, MinSize, MaxSize))
	case c.Count < 0 || c.Count > maxCount:
		return ErrConfig(fmt.Sprintf("a count of %d is not in 0 to %d", c.Count, maxCount))
	}
	return nil
}

func (c *Config) debug(format string, args ...any) {
	if c.Debug != nil {
		c.Debug(format, args...)
	}
}

// Result is the result of one connection.
type Result struct {
	Local      netip.AddrPort `json:"local" doc:"this end of the connection"`
	Remote     netip.AddrPort `json:"remote" doc:"the peer's end"`
	Iterations int            `json:"iterations" doc:"complete iterations"`
	Bytes      int64          `json:"bytes" doc:"ping data in each direction"`
	Seconds    float64        `json:"seconds" doc:"from the first Send to the end of the last iteration"`
	Revision   int            `json:"mpa_revision" doc:"MPA revision agreed on"`
	MarkersOut bool           `json:"markers_out" doc:"markers in what this end sends"`
	MarkersIn  bool           `json:"markers_in" doc:"markers in what this end receives"`
	CRC        bool           `json:"crc" doc:"CRC in use"`
	Validated  bool           `json:"validated" doc:"every byte was compared, and right"`

	started time.Time
}

// Latency returns the time of one iteration.
func (r *Result) Latency() time.Duration {
	if r.Iterations == 0 {
		return 0
	}
	return time.Duration(r.Seconds / float64(r.Iterations) * float64(time.Second))
}

func (r *Result) connected(q verbs.QP) {
	p := q.Params()
	r.Local, r.Remote = q.LocalAddr(), q.RemoteAddr()
	r.Revision, r.CRC = int(p.Revision), p.Send.CRC
	r.MarkersOut, r.MarkersIn = p.Send.Markers, p.Receive.Markers
	r.started = time.Now()
}

func (r *Result) done(byteCount int) {
	r.Iterations++
	r.Bytes += int64(byteCount)
	r.Seconds = time.Since(r.started).Seconds()
}
