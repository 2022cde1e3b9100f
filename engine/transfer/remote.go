package transfer

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"

	"xwarp/ddp"
	"xwarp/engine/verbs"
)

// ask sends a request to a server with a directory, and returns the answer.
func (c *Client) ask(ctx context.Context, m *Message, want Type) (Message, error) {
	if err := c.postMessage(m); err != nil {
		return Message{}, c.reason(ctx, err)
	}
	return c.expect(ctx, want)
}

// Stat returns the attributes of a path, with KindNone if it does not exist.
func (c *Client) Stat(ctx context.Context, path string) (Attr, error) {
	m, err := c.ask(ctx, &Message{Type: TypeStat, Path: path}, TypeAttr)
	return m.Attr, err
}

// Mkdir creates a directory, unless it exists.
func (c *Client) Mkdir(ctx context.Context, path string, mode uint16) error {
	m := Message{Type: TypeMkdir, Path: path, Attr: Attr{Kind: KindDir, Mode: mode}}
	_, err := c.ask(ctx, &m, TypeAttr)
	return err
}

// SetAttr sets the permissions and modification time of a directory of the server.
func (c *Client) SetAttr(ctx context.Context, path string, a Attr) error {
	_, err := c.ask(ctx, &Message{Type: TypeSetAttr, Path: path, Attr: a}, TypeAttr)
	return err
}

// Sync returns when the files of StorePack are on the server's disk.
func (c *Client) Sync(ctx context.Context) error {
	_, err := c.ask(ctx, &Message{Type: TypeSync}, TypeAttr)
	return err
}

// List returns the entries of a directory.
func (c *Client) List(ctx context.Context, path string) ([]Entry, error) {
	listing, err := c.read(ctx, &Message{Type: TypeList, Path: path})
	if err != nil {
		return nil, err
	}
	return parseListing(listing)
}

// Extents returns the data ranges of the file being fetched.
func (f *RemoteFile) Extents(ctx context.Context) ([]Extent, error) {
	b, err := f.c.read(ctx, &Message{Type: TypeExtents})
	if err != nil {
		return nil, err
	}
	return parseExtents(b, int64(f.reply.Attr.Length))
}

// read returns a copy of the memory that the server exposes in answer to m.
func (c *Client) read(ctx context.Context, m *Message) ([]byte, error) {
	region, err := c.ask(ctx, m, TypeRegion)
	if err != nil || region.Length == 0 {
		return nil, err
	}
	if region.Length > 2*maxListing {
		return nil, c.abandon(fmt.Errorf("%w: a listing of %d bytes", ErrProtocol, region.Length))
	}
	b := make([]byte, 0, region.Length)
	for len(b) < cap(b) {
		n := min(BufferLen, cap(b)-len(b))
		if err := c.do(ctx, verbs.WRRead, n, region.STag, ddp.TO(len(b))); err != nil {
			return nil, err
		}
		b = append(b, c.memory.Bytes()[:n]...)
	}
	if err := c.postMessage(&Message{Type: TypeDone}); err != nil {
		return nil, c.reason(ctx, err)
	}
	return b, nil
}

// RemoteFile is an open file of the server. A Client has one at a time.
type RemoteFile struct {
	c     *Client
	path  string
	local *os.File // nil for a stream
	reply Message  // the server's Opened
	write bool
}

// Attr returns the file's attributes at the server.
func (f *RemoteFile) Attr() Attr { return f.reply.Attr }

// Resumed reports whether a part of a file being written already existed.
func (f *RemoteFile) Resumed() bool { return f.reply.Flag }

// Store opens a file of the server, to which local is copied. Clients with the same session may write it together.
func (c *Client) Store(ctx context.Context, path string, a Attr, session uint64, local *os.File) (
	*RemoteFile, error) {
	return c.openFile(ctx, &Message{Type: TypeStore, Path: path, Attr: a, Session: session}, local)
}

// Fetch opens a file to copy to local, or to compare with it.
func (c *Client) Fetch(ctx context.Context, path string, local *os.File) (*RemoteFile, error) {
	return c.openFile(ctx, &Message{Type: TypeFetch, Path: path}, local)
}

func (c *Client) openFile(ctx context.Context, m *Message, local *os.File) (*RemoteFile, error) {
	reply, err := c.ask(ctx, m, TypeOpened)
	if err != nil {
		return nil, err
	}
	return &RemoteFile{c: c, path: m.Path, local: local, reply: reply, write: m.Type == TypeStore},
		nil
}

// Same reports whether n bytes of the local file from offset off on equal those of the server. n must be at most
// maxSum.
func (f *RemoteFile) Same(ctx context.Context, off, n int64) (same bool, err error) {
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f.local, off, n)); err != nil {
		return false, err
	}
	m := Message{Type: TypeSum, Offset: uint64(off), Length: uint64(n)}
	m, err = f.c.ask(ctx, &m, TypeSum)
	if err == nil && (m.Offset != uint64(off) || m.Length != uint64(n)) {
		err = fmt.Errorf("%w: Sum for another range", ErrProtocol)
	}
	return Sum(h.Sum(nil)) == m.Sum, err
}

// Close finishes the file. With complete, the server gives a written file its final name, or confirms that a read file
// did not change since it was opened. Otherwise an existing file of that name stays unchanged.
func (f *RemoteFile) Close(ctx context.Context, complete bool) error {
	_, err := f.c.ask(ctx, &Message{Type: TypeClose, Flag: complete}, TypeAttr)
	return err
}
