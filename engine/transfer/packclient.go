package transfer

import (
	"context"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"xwarp/engine/verbs"
)

// Pack has small files that are sent to the server, or from it, in one exchange of messages. A Client fills one at a
// time.
type Pack struct {
	b     []byte // in the client's memory
	files int
}

// NewPack returns an empty pack in the client's memory. It must be stored or fetched before the next transfer.
func (c *Client) NewPack() *Pack { return &Pack{b: c.memory.Bytes()[:0:BufferLen]} }

// PackSize returns how many of a pack's BufferLen bytes a file takes.
func PackSize(path string, length uint64) int { return entryLen + len(path) + int(length) }

// Add adds a file. read fills its content; after an error nothing is added. For a pack to fetch, a.Length must be zero.
func (p *Pack) Add(path string, a Attr, read func(content []byte) error) error {
	room := cap(p.b) - len(p.b)
	if p.files == MaxPacked || a.Length > PackedLen || PackSize(path, a.Length) > room {
		return fmt.Errorf("%s does not fit into the pack", path)
	}
	b := appendEntry(p.b, &Entry{path, a})
	n := len(b) + int(a.Length)
	if err := read(b[len(b):n]); err != nil {
		return err
	}
	p.b = b[:n]
	p.files++
	return nil
}

// StorePack stores the files of a pack and returns which of them were stored. The others must be sent one by one, to
// learn why they were not.
func (c *Client) StorePack(ctx context.Context, p *Pack) (Taken, error) {
	if err := c.writePack(ctx, p); err != nil {
		return Taken{}, err
	}
	m := Message{Type: TypeStorePack, Length: uint64(len(p.b)), Check: xxhash.Sum64(p.b)}
	m, err := c.ask(ctx, &m, TypePacked)
	return m.Taken, err
}

// FetchPack fetches the files that were added to p, and returns them in the same order. One that is nil must be fetched
// separately. The content is valid until the next transfer.
func (c *Client) FetchPack(ctx context.Context, p *Pack) ([]*Packed, error) {
	if err := c.writePack(ctx, p); err != nil {
		return nil, err
	}
	m, err := c.ask(ctx, &Message{Type: TypeFetchPack, Length: uint64(len(p.b))}, TypePacked)
	if err != nil {
		return nil, err
	}
	if m.Length > BufferLen {
		return nil, c.abandon(fmt.Errorf("%w: a pack of %d bytes", ErrProtocol, m.Length))
	}
	if m.Length > 0 {
		if err := c.do(ctx, verbs.WRRead, int(m.Length), c.buffer.STag, 0); err != nil {
			return nil, err
		}
	}
	b := c.memory.Bytes()[:m.Length]
	if check := xxhash.Sum64(b); check != m.Check {
		return nil, c.abandon(fmt.Errorf("XXH64 of a pack is %x, the server says %x",
			check, m.Check))
	}
	came, err := parsePack(b)
	if err != nil {
		return nil, c.abandon(err)
	}
	files := make([]*Packed, p.files)
	for i := range files {
		if !m.Taken.Has(i) {
			continue
		}
		if len(came) == 0 {
			return nil, c.abandon(fmt.Errorf("%w: truncated pack", ErrProtocol))
		}
		files[i], came = &came[0], came[1:]
	}
	return files, nil
}

// askBuffer returns the location of the server's buffer for this client.
func (c *Client) askBuffer(ctx context.Context) (Message, error) {
	if c.buffer.Type != 0 {
		return c.buffer, nil
	}
	m, err := c.ask(ctx, &Message{Type: TypeBuffer}, TypeRegion)
	if err == nil && m.Length < BufferLen {
		err = c.abandon(fmt.Errorf("%w: a buffer of %d bytes", ErrProtocol, m.Length))
	}
	if err == nil {
		c.buffer = m
	}
	return m, err
}

// writePack writes a pack to the server's buffer.
func (c *Client) writePack(ctx context.Context, p *Pack) error {
	if _, err := c.askBuffer(ctx); err != nil {
		return err
	}
	return c.do(ctx, verbs.WRWrite, len(p.b), c.buffer.STag, 0)
}
