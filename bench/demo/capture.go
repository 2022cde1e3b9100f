package demo

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"xwarp/engine/host/hostfile"
	"xwarp/ring"
	"xwarp/ring/pcapng"
)

// captured is the pcapng file of host A's interface.
type captured struct {
	name string
	disk *os.File
	buf  *bufio.Writer
	file *pcapng.File
}

func newCapture(name string) (*captured, error) {
	f, err := hostfile.Create(name)
	if err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	c := &captured{name: name, disk: f, buf: bufio.NewWriterSize(f, 1<<20)}
	c.file = pcapng.NewFile(c.buf)
	return c, nil
}

func (c *captured) wrap(p ring.Port) (ring.Port, error) {
	return c.file.Wrap(p, "A eth0", pcapng.Both, func() int64 { return time.Now().UnixNano() })
}

// close makes the file complete. The device must be closed before.
func (c *captured) close() (*Capture, error) {
	err := errors.Join(c.file.Flush(), c.buf.Flush())
	n, _ := c.disk.Seek(0, io.SeekCurrent)
	if err = errors.Join(err, c.disk.Close()); err != nil {
		err = fmt.Errorf("capture %s is not complete: %w", c.name, err)
	}
	return &Capture{File: c.name, Packets: c.file.Packets(), Bytes: uint64(n)}, err
}
