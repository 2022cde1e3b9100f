package transfer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"xwarp/engine/verbs"
)

// copying is a server's state of one client.
type copying struct {
	s      *Server
	l      *link
	remote netip.AddrPort
	file   *opened // nil if none is open
	buffer *buffer // nil until the client sends Buffer
	// refusals is the number of failed requests about files.
	refusals int
}

// opened is the open file of a client.
type opened struct {
	op, path string
	openedAt time.Time
	length   uint64
	commit   func() error // called when the client closes the file as complete
	leave    func() error // closes the file; commit of a stored file closes it, too
	watch    watch        // progress over all requests for the file
	err      error        // first error of a request for its bytes
	store    *part        // the file being stored; nil for a fetch
	read     *reading     // the file being fetched; nil for a store
}

func (o *opened) file() *os.File {
	if o.store != nil {
		return o.store.file.File
	}
	return o.read.file
}

// handleRequest serves one request. An error ends the connection. A problem with a file does not: it is sent to the
// client.
func (c *copying) handleRequest(ctx context.Context, m *Message) error {
	t := c.s.cfg.Tree
	switch m.Type {
	case TypeStat:
		a, err := t.stat(m.Path)
		return c.answerAttr("stat", m.Path, a, err)
	case TypeMkdir:
		return c.answerAttr("mkdir", m.Path, Attr{}, t.mkdir(m.Path, m.Attr.Mode))
	case TypeList:
		listing, err := t.list(m.Path)
		o := &opened{op: "list", path: m.Path, openedAt: time.Now()}
		return c.show(ctx, o, listing, err)
	case TypeFetch, TypeStore:
		return c.openFile(m)
	case TypeSetAttr:
		return c.answerAttr("setattr", m.Path, Attr{}, t.setAttr(m))
	case TypeBuffer:
		return c.makeBuffer()
	case TypeStoreBytes:
		return c.storeBytes(m)
	case TypeFetchBytes:
		return c.fetchBytes(m)
	case TypeStorePack:
		return c.storePack(m)
	case TypeFetchPack:
		return c.fetchPack(m)
	case TypeSync:
		return c.answer(&Message{Type: TypeAttr}, c.sync())
	case TypeExtents:
		return c.extents(ctx)
	case TypeSum:
		return c.sum(ctx, m)
	case TypeClose:
		return c.close(m.Flag)
	}
	return fmt.Errorf("%w: got %v, want a request", ErrProtocol, m.Type)
}

// watch returns the progress that the client must make while others wait: with its open file, or, without one, by
// sending a request.
func (c *copying) watch() *watch {
	if c.file != nil {
		return &c.file.watch
	}
	return &watch{contended: c.s.full}
}

// watchFile makes the client move the data of the file that it opens, while others wait.
func (c *copying) watchFile(o *opened) {
	o.watch = watch{remaining: MaxFile, contended: c.s.full}
	if p := o.store; p != nil {
		o.watch.contended = func() bool { return c.s.full() || p.pressed(c.s.cfg.Idle) }
		o.watch.sharers = p.sharers
	}
}

// answer sends m, or if err is not nil, an Error with it. It returns the error of sending.
func (c *copying) answer(m *Message, err error) error {
	if err == nil {
		return c.l.postMessage(m)
	}
	code := CodeFile
	if r, ok := errors.AsType[*refusal](err); ok {
		code = r.code
	}
	return c.l.postMessage(&Message{Type: TypeError, Code: code, Text: err.Error()})
}

// answerAttr answers a request for one name with a, or with err.
func (c *copying) answerAttr(op, path string, a Attr, err error) error {
	if err != nil {
		return c.refused(&opened{op: op, path: path, openedAt: time.Now()}, err)
	}
	return c.l.postMessage(&Message{Type: TypeAttr, Attr: a})
}

// extents serves the data ranges of the file that the client fetches.
func (c *copying) extents(ctx context.Context) error {
	o := c.file
	if o == nil || o.read == nil {
		return refuse(CodeProtocol, "Extents without a file that is fetched")
	}
	list, err := Extents(o.read.file, int64(o.read.attr.Length))
	if err == nil && len(list) > maxListing/extentLen {
		err = refuse(CodeTooLarge, "%s has too many holes", o.path)
	}
	v := &opened{op: "fetch", path: o.path, openedAt: time.Now()}
	return c.show(ctx, v, appendExtents(nil, list), err)
}

// show lets the client read b until it sends Done. If err is not nil, it is the reason why o failed, and is sent
// instead.
func (c *copying) show(ctx context.Context, o *opened, b []byte, err error) error {
	if err != nil {
		return c.refused(o, err)
	}
	if len(b) == 0 {
		return c.l.postMessage(&Message{Type: TypeRegion})
	}
	mr, err := c.l.end.Buffer(len(b), verbs.RemoteRead)
	if err != nil {
		return err
	}
	copy(mr.Bytes(), b)
	err = c.l.postMessage(&Message{Type: TypeRegion, Length: uint64(len(b)), STag: mr.STag()})
	if err != nil {
		return err
	}
	m, err := c.l.receiveMoving(ctx, &watch{remaining: uint64(len(b)), contended: c.s.full})
	if err = checkType(TypeDone, &m, err); err == nil {
		err = c.l.free(ctx, mr)
	}
	if err != nil && !errors.Is(err, ErrPeerClosed) { // the client may close before it acknowledges the last message
		c.event(o, err)
	}
	return err
}

// openFile opens the file of a Fetch or Store.
func (c *copying) openFile(m *Message) error {
	if c.file != nil {
		return refuse(CodeProtocol, "%s is open still", c.file.path)
	}
	reply := Message{Type: TypeOpened}
	o := &opened{op: "fetch", path: m.Path, openedAt: time.Now()}
	if m.Type == TypeStore {
		o.op = "store"
		p, err := c.s.cfg.Tree.store(c, m)
		if err != nil {
			return c.refused(o, err)
		}
		o.store, o.commit = p, p.commit
		o.leave = func() error { return p.leave(c) }
		reply.Attr, reply.Flag = p.attr, p.resumed
	} else {
		r, err := c.s.cfg.Tree.read(m.Path)
		if err != nil {
			return c.refused(o, err)
		}
		o.read, o.commit, o.leave = r, r.unchanged, r.leave
		reply.Attr = r.attr
	}
	c.watchFile(o)
	c.file, o.length = o, reply.Attr.Length
	return c.l.postMessage(&reply)
}

// refused sends the error of a request about a file to the client, counts the request as failed, and reports it. After
// maxRefused such requests it returns an error, which ends the connection.
func (c *copying) refused(o *opened, err error) error {
	if c.refusals++; c.refusals > maxRefused {
		return refuse(CodeFile, "as many files failed as a copy may have, %d; the last one: %v",
			maxRefused, err)
	}
	c.event(o, err)
	return c.answer(nil, err)
}

// close ends the use of the open file. With complete, a stored file gets its name, and a fetched one must not have
// changed. Without complete, a stored file does not get its name.
func (c *copying) close(complete bool) error {
	o := c.file
	if o == nil {
		return refuse(CodeProtocol, "Close without an open file")
	}
	c.file = nil
	var err error
	switch {
	case complete:
		err = o.commit()
		c.event(o, err)
	case o.err != nil:
		c.event(o, o.err)
	}
	if o.op == "fetch" || !complete || err != nil {
		err = errors.Join(err, o.leave())
	}
	return c.answer(&Message{Type: TypeAttr}, err)
}

// abandon closes the files that were open when the connection ended.
func (c *copying) abandon() (err error) {
	if c.buffer != nil {
		err = errors.Join(c.buffer.batch.Close(), c.buffer.dirs.Close())
	}
	if o := c.file; o != nil {
		c.file = nil
		if o.err != nil {
			c.event(o, o.err)
		}
		err = errors.Join(err, o.leave())
	}
	return err
}

// event counts and reports that a file was copied, or that a request failed with err.
func (c *copying) event(o *opened, err error) {
	n := o.length
	if err != nil {
		c.s.cfg.Stats.Failed.Add(1)
	} else {
		c.s.cfg.Stats.countMoved(o.op == "store", 1, n)
	}
	c.s.cfg.Event(Event{
		Op: o.op, File: o.path, Remote: c.remote, Bytes: int64(n), Took: time.Since(o.openedAt),
		Err: err,
	})
}
