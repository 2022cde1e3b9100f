package monitor

import (
	"bytes"
	"container/list"
	"sync"
	"sync/atomic"
)

// Limits of the kept first frames of connections. They bound the memory that peers can make a Hub use.
const (
	maxOpen       = 256      // connections in start-up; a flood of SYNs reaches this limit
	maxKept       = 4096     // connections whose frames are kept
	maxOver       = 64       // of these, connections ended by a possibly forged RST
	maxBytes      = 16 << 20 // of all kept frames
	maxFrames     = 24       // of one connection
	maxOfOne      = 24 << 10 // bytes of one connection: enough for two FPDUs of jumbo frames and all frames before them
	maxAfterReply = 16       // frames after the MPA Reply within which the first FPDU of each direction is expected
	bucketBits    = 12
	replyKey      = "MPA ID Rep Frame" // RFC 5044, 7.1.2
	fullSYN       = 0x12               // SYN and ACK
)

// Frame is one frame of a capture.
type Frame struct {
	Time      int64 // nanoseconds since 1970
	Port      string
	Direction Direction
	Length    int    // bytes on the wire
	Data      []byte // the captured bytes, from the first one of the frame
}

// start holds the first frames of one connection.
type start struct {
	flow    Flow
	bucket  uint32
	frames  []Frame
	bytes   int
	payload bool       // a segment with payload was seen
	reply   bool       // the MPA Reply was seen
	first   [2]bool    // by direction: a segment with payload was seen after the MPA Reply
	ended   [2]bool    // by direction: a FIN was seen
	after   int        // frames since the MPA Reply
	kept    bool       // the start-up is over
	in      *list.List // open, keep or over of starts
	elem    *list.Element
}

// starts keeps the first frames of connections.
type starts struct {
	opening atomic.Int32                  // connections in start-up
	buckets [1 << bucketBits]atomic.Int32 // connections in start-up, by segment.bucket
	mu      sync.Mutex
	conns   map[Flow]*start
	open    *list.List // connections in start-up; each list has *start, the oldest first
	keep    *list.List // connections after their start-up
	over    *list.List // of these, those that the peer reset
	bytes   int        // of all kept frames
	lost    int        // connections whose frames were dropped because of a limit
}

func (t *starts) init() {
	t.conns, t.open, t.keep, t.over = map[Flow]*start{}, list.New(), list.New(), list.New()
}

// watches reports whether a segment begins or ends a connection, or may belong to one in start-up.
func (t *starts) watches(s *segment, b []byte) bool {
	return s.flags&(syn|fin|rst) != 0 || t.opening.Load() != 0 && t.buckets[s.bucket(b)].Load() != 0
}

func (t *starts) onFrame(s *segment, b []byte, d Direction, now int64, port string) {
	flow := s.flow(b, d)
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.conns[flow]
	switch {
	case s.flags&rst != 0:
		t.reset(c, d)
		return
	case s.flags&syn != 0 && (c == nil && s.flags&fullSYN != fullSYN || c != nil && d == Tx &&
		(c.kept || c.payload)):
		// A peer's SYN for an existing connection may be forged. It has no effect until we answer it.
		t.remove(c)
		c = t.addStart(flow, s.bucket(b))
	case c == nil:
		return
	}
	if !c.kept {
		t.keepFrame(c, s, b, d, now, port)
	}
	if s.flags&fin != 0 {
		if c.ended[d] = true; c.ended[1-d] {
			t.remove(c)
		}
	}
}

// reset handles an RST. Ours ends the connection. A peer's RST may be forged, so the frames of a connection after its
// start-up are kept until maxOver others were reset.
func (t *starts) reset(c *start, d Direction) {
	switch {
	case c == nil:
	case d == Tx || !c.kept:
		t.remove(c)
	case c.in == t.keep:
		c.moveTo(t.over)
		if t.over.Len() > maxOver {
			t.remove(t.over.Front().Value.(*start))
		}
	}
}

// moveTo moves c from its list, if it is in one, to the end of another.
func (c *start) moveTo(to *list.List) {
	if c.in != nil {
		c.in.Remove(c.elem)
	}
	c.in, c.elem = to, to.PushBack(c)
}

func (t *starts) addStart(f Flow, bucket uint32) *start {
	if t.open.Len() == maxOpen {
		t.endStart(t.open.Front().Value.(*start))
	}
	c := &start{flow: f, bucket: bucket}
	c.moveTo(t.open)
	t.conns[f] = c
	t.opening.Add(1)
	t.buckets[bucket].Add(1)
	return c
}

// keepFrame keeps a frame of a connection in start-up. After the first payload it skips segments without payload.
func (t *starts) keepFrame(c *start, s *segment, b []byte, d Direction, now int64, port string) {
	if s.payload > 0 {
		c.payload = true
	}
	if c.reply {
		c.after++
	}
	if s.payload > 0 || !c.payload {
		if len(c.frames) == maxFrames || c.bytes+len(b) > maxOfOne {
			t.endStart(c)
			return
		}
		c.frames = append(c.frames, Frame{now, port, d, len(b), bytes.Clone(b)})
		c.bytes += len(b)
		t.bytes += len(b)
	}
	switch {
	case s.payload == 0:
	case c.reply:
		c.first[d] = true
	case bytes.HasPrefix(b[min(s.data, len(b)):], []byte(replyKey)):
		c.reply = true
	}
	if c.first[0] && c.first[1] || c.after >= maxAfterReply {
		t.endStart(c)
	}
}

// endStart ends the start-up of a connection. The frames stay if they include the MPA Reply.
func (t *starts) endStart(c *start) {
	if !c.reply {
		t.lost++
		t.remove(c)
		return
	}
	t.close(c)
	c.kept = true
	c.moveTo(t.keep)
	for t.keep.Len()+t.over.Len() > maxKept || t.bytes > maxBytes {
		l := t.over
		if l.Len() == 0 {
			l = t.keep
			t.lost++
		}
		if l.Len() == 0 {
			return
		}
		t.remove(l.Front().Value.(*start))
	}
}

// close removes c from the connections in start-up.
func (t *starts) close(c *start) {
	t.opening.Add(-1)
	t.buckets[c.bucket].Add(-1)
}

func (t *starts) remove(c *start) {
	if c == nil {
		return
	}
	if !c.kept {
		t.close(c)
	}
	c.in.Remove(c.elem)
	t.bytes -= c.bytes
	delete(t.conns, c.flow)
}

// frames returns the kept frames of the connections that pass the filter. Frames of one connection are in order of
// time.
func (t *starts) frames(f *Filter) (all []Frame) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.conns {
		if f.matchFlow(&c.flow) {
			all = append(all, c.frames...)
		}
	}
	return all
}
