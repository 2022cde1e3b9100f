// Package pcapng records the packets of ring.Ports in a pcapng file, with time stamps in nanoseconds. It writes the
// four kinds of blocks itself: gopacket has 7 MB of tables, which each program fills at its start and each garbage
// collection scans.
package pcapng

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

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

// maxPorts is the number of interfaces in a file at which Wrap refuses another one. maxName is the maximum number of
// bytes of a name: the length of an option has only 16 bits.
const (
	maxPorts = 4096
	maxName  = 1 << 10
)

// File is a pcapng file. Ports of several threads may share it.
type File struct {
	mu      sync.Mutex
	out     *bufio.Writer
	block   block // the last block written, to reuse its memory
	ports   int
	packets uint64
	err     error
}

// NewFile returns a File that writes to w; nothing is written before the first Wrap or AddInterface.
func NewFile(w io.Writer) *File { return &File{out: bufio.NewWriter(w)} }

// Port is a ring.Port that records its packets.
type Port struct {
	ring.Port
	file   *File
	dir    Directions
	id     int
	clock  func() int64
	joined []byte
}

// Wrap returns p with a recorder, as an interface called name. clock returns nanoseconds since 1970. A packet is
// recorded when it is received or sent by the program, not when it is on the wire.
func (f *File) Wrap(p ring.Port, name string, dir Directions, clock func() int64) (*Port, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, f.err
	}
	if f.ports == maxPorts {
		return nil, fmt.Errorf("capture: interface %s: a file has at most %d", name, maxPorts)
	}
	id, err := f.describe(name)
	if err != nil {
		return nil, err
	}
	return &Port{Port: p, file: f, dir: dir, id: id, clock: clock}, nil
}

// AddInterface adds an interface to the file, without a Port, and returns its number for Write and WriteStats.
func (f *File) AddInterface(name string) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.describe(name)
}

func (f *File) describe(name string) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	if len(name) > maxName {
		name = strings.ToValidUTF8(name[:maxName], "")
	}
	if f.ports == 0 {
		f.append(section(f.block))
	}
	if f.append(describeBlock(f.block, name)); f.err != nil {
		f.err = fmt.Errorf("capture: interface %s: %w", name, f.err)
		return 0, f.err
	}
	f.ports++
	return f.ports - 1, nil
}

// append adds a block to the file, unless an earlier write has failed.
func (f *File) append(b block) {
	if f.block = b; f.err == nil {
		_, f.err = f.out.Write(b)
	}
}

// Write records a packet of interface id at time at, in nanoseconds since 1970. The packet has length bytes, of which b
// holds the first ones. Write returns the first error of the file.
func (f *File) Write(id int, at int64, b []byte, length int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.check(id); f.err == nil {
		f.append(packetBlock(f.block, id, at, b, length))
		f.packets++
	}
	return f.err
}

// WriteStats records how many packets interface id had until time at, and how many of them the file lacks. It belongs
// at the end of the file.
func (f *File) WriteStats(id int, at int64, received, dropped uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.check(id); f.err == nil {
		f.append(statsBlock(f.block, id, at, received, dropped))
	}
	return f.err
}

// check makes the file fail unless id is one of its interfaces.
func (f *File) check(id int) {
	if f.err == nil && (id < 0 || id >= f.ports) {
		f.err = fmt.Errorf("capture: interface %d of %d", id, f.ports)
	}
}

// Packets returns the number of recorded packets.
func (f *File) Packets() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.packets
}

// Flush writes buffered data and returns the first error of the file. The caller must close the writer of NewFile.
func (f *File) Flush() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = f.out.Flush()
	}
	return f.err
}

// Recv implements ring.Port and records the received packets.
func (p *Port) Recv(batch []ring.Packet) int {
	n := p.Port.Recv(batch)
	if p.dir&Rx == 0 {
		return n
	}
	for i := range batch[:n] {
		b := batch[i].Frag(0)
		if batch[i].NumFrags() > 1 {
			p.joined = batch[i].AppendTo(p.joined[:0])
			b = p.joined
		}
		p.file.Write(p.id, p.clock(), b, len(b))
	}
	return n
}

// Send implements ring.Port and records the frame.
func (p *Port) Send(b ring.TxBuf, n int) {
	if p.dir&Tx != 0 && n >= 0 && n <= len(b.Data) {
		p.file.Write(p.id, p.clock(), b.Data[:n], n)
	}
	p.Port.Send(b, n)
}

// SendBlock implements ring.Port. It records the block as one packet, as tcpdump shows packets that the kernel cuts
// later.
func (p *Port) SendBlock(b []byte, s ring.Shape) {
	if p.dir&Tx != 0 {
		p.file.Write(p.id, p.clock(), b, len(b))
	}
	p.Port.SendBlock(b, s)
}

// Close closes the Port below and flushes the file, which stays open for the other Ports.
func (p *Port) Close() error { return errors.Join(p.Port.Close(), p.file.Flush()) }
