// Package rping implements both ends of rdma-core's program rping on this engine, for tests against rping itself. The
// client names a buffer; the server reads it by RDMA Read and sends a go-ahead. The client names a second buffer; the
// server writes the data there by RDMA Write and sends a go-ahead again.
//
//	client                                  server
//	  Send {address, STag, size of source} ──►
//	                                  ◄── RDMA Read of the source
//	                                  ◄── Send (go-ahead)
//	  Send {address, STag, size of sink}   ──►
//	                                  ◄── RDMA Write into the sink, of the text with its final zero
//	                                  ◄── Send (go-ahead)
//
// This repeats until the client closes. Each Send has 16 bytes; the content of the server's is ignored.
package rping

import (
	"fmt"
	"net/netip"
	"time"

	"xwarp/engine/verbs"
)

// Limits of rping.
const (
	defaultSize = 64
	// minSize has room for the text of every iteration, "rdma-ping-2147483647: ", and its final zero.
	minSize = 23
	// MaxSize is one byte less than 64 KiB: rping refuses 65536, although its message names that number as the limit.
	MaxSize = 1<<16 - 1
	// maxCount is the largest number that fits the text.
	maxCount = 1<<31 - 1
	// closeGrace is longer than the engine's own close timeout, after which it resets the connection.
	closeGrace = 10 * time.Second
)

// Config describes one side. The zero value is rping's default: 64 bytes, until the connection ends.
type Config struct {
	Size     int  // bytes of ping data of the client; zero means 64
	Count    int  // iterations of the client; zero means no end
	Validate bool // compare every byte, on the server too
	Conn     verbs.DialConfig
}

// Complete fills in defaults and checks the ranges.
func (c *Config) Complete() error {
	if c.Size == 0 {
		c.Size = defaultSize
	}
	if c.Size < minSize || c.Size > MaxSize || c.Count < 0 || c.Count > maxCount {
		return fmt.Errorf("size %d is not in %d to %d, or count %d not in 0 to %d", c.Size, minSize,
			MaxSize, c.Count, maxCount)
	}
	return nil
}

// Result is the result of one connection.
type Result struct {
	Remote     netip.AddrPort
	Iterations int   // complete ones
	Bytes      int64 // ping data in each direction
	Revision   int   // of MPA
	MarkersOut bool
	MarkersIn  bool
	CRC        bool
	Validated  bool // every byte was compared
}

func (r *Result) connected(q verbs.QP) {
	p := q.Params()
	r.Remote = q.RemoteAddr()
	r.Revision, r.CRC = int(p.Revision), p.Send.CRC
	r.MarkersOut, r.MarkersIn = p.Send.Markers, p.Receive.Markers
}

func (r *Result) done(byteCount int) {
	r.Iterations++
	r.Bytes += int64(byteCount)
}
