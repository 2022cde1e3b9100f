// Package capture records the packets of ring.Ports in a pcapng file, with nanosecond time stamps. It is for tools and
// tests, apart from ring so that the data path does not carry its dependency.
package capture

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"

	"xwarp/ring"
)

// Directions says which packets of a Port are recorded.
type Directions uint8

// Directions.
const (
	Rx   Directions = 1 << iota // received packets
	Tx                          // sent packets
	Both = Rx | Tx
)

// maxPorts bounds the interfaces of one file.
const maxPorts = 4096

// File is a pcapng file. Ports of several threads may share it.
type File struct {
	mu      sync.Mutex
	out     io.Writer
	w       *pcapgo.NgWriter
	ports   int
	packets uint64
	err     error
}

// NewFile returns a File that writes to w; nothing is written before the first Wrap.
func NewFile(w io.Writer) *File { return &File{out: w} }

// Port is a ring.Port that records what passes.
type Port struct {
	ring.Port
	file  *File
	dir   Directions
	id    int
	clock func() int64
	buf   []byte
}

// Wrap returns p with a recorder, as an interface called name. clock gives nanoseconds since 1970. A packet is recorded
// when it is received or sent, not when it is on the wire.
func (f *File) Wrap(p ring.Port, name string, dir Directions, clock func() int64) (*Port, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, f.err
	}
	if f.ports == maxPorts {
		return nil, fmt.Errorf("capture: interface %s: a file has at most %d", name, maxPorts)
	}
	id, err := f.add(pcapgo.NgInterface{Name: name, LinkType: layers.LinkTypeEthernet, OS: runtime.GOOS, TimestampResolution: 9})
	if err != nil {
		f.err = fmt.Errorf("capture: interface %s: %w", name, err)
		return nil, f.err
	}
	f.ports++
	return &Port{Port: p, file: f, dir: dir, id: id, clock: clock}, nil
}

// add describes an interface in the file; the first one comes with the file's head.
func (f *File) add(i pcapgo.NgInterface) (int, error) {
	if f.w != nil {
		return f.w.AddInterface(i)
	}
	opt := pcapgo.DefaultNgWriterOptions
	opt.SectionInfo.Application = "xwarp"
	var err error
	f.w, err = pcapgo.NewNgWriterInterface(f.out, i, opt)
	return 0, err
}

// Packets returns the number of recorded packets.
func (f *File) Packets() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.packets
}

// Flush writes what is buffered and returns the first failure of the file. The writer below is the caller's to close.
func (f *File) Flush() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.w != nil && f.err == nil {
		f.err = f.w.Flush()
	}
	return f.err
}

func (f *File) write(id int, now int64, b []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return
	}
	ci := gopacket.CaptureInfo{Timestamp: time.Unix(0, now), CaptureLength: len(b), Length: len(b), InterfaceIndex: id}
	if f.err = f.w.WritePacket(ci, b); f.err == nil {
		f.packets++
	}
}

// Recv is Port.Recv, recorded.
func (p *Port) Recv(batch []ring.Packet) int {
	n := p.Port.Recv(batch)
	if p.dir&Rx == 0 {
		return n
	}
	for i := range batch[:n] {
		b := batch[i].Frag(0)
		if batch[i].NumFrags() > 1 {
			p.buf = batch[i].AppendTo(p.buf[:0])
			b = p.buf
		}
		p.file.write(p.id, p.clock(), b)
	}
	return n
}

// Send is Port.Send, recorded.
func (p *Port) Send(b ring.TxBuf, n int) {
	if p.dir&Tx != 0 && n >= 0 && n <= len(b.Data) {
		p.file.write(p.id, p.clock(), b.Data[:n])
	}
	p.Port.Send(b, n)
}

// Close closes the Port below and flushes the file, which stays open for the other Ports.
func (p *Port) Close() error { return errors.Join(p.Port.Close(), p.file.Flush()) }
