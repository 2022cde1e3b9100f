package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"xwarp/engine/daemon/client"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/transfer"
	"xwarp/engine/verbs"
)

// wrongError is the error of corrupted data.
type wrongError struct{ what string }

func (e *wrongError) Error() string { return "wrong: " + e.what }

// isWrong reports whether err ends the soak, because no link, peer or kill explains it.
func isWrong(err error) bool {
	return errors.As(err, new(*wrongError)) || errors.Is(err, client.ErrDaemonGone)
}

// same returns a wrongError if the data got differs from the expected data.
func same(what string, got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	i := 0
	for i < min(len(got), len(want)) && got[i] == want[i] {
		i++
	}
	return &wrongError{fmt.Sprintf("%s: %d bytes instead of %d, the first that differs is %d",
		what,
		len(got), len(want), i)}
}

// noise fills b with random bytes, different ones in each call.
func noise(b []byte) {
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], rand.Uint64())
	binary.LittleEndian.PutUint64(seed[8:], rand.Uint64())
	rand.NewChaCha8(seed).Read(b)
}

// Memory layout of either end: bulk bytes to write, bulk bytes to read back, two messages, and a word for atomics.
const (
	bulk    = 256 << 10
	message = 32 << 10
	wordAt  = 2*bulk + 2*message
	soakLen = wordAt + 4096
)

// patience is the timeout of one operation, including link flaps.
const patience = 2 * time.Minute

// release releases all resources of an End, whose device stays open.
func release(e *verbstest.End) {
	e.QP.Close()
	e.MR.Close()
	e.CQ.Close()
	e.PD.Close()
	e.Dev.Free(e.Mem)
}

// connected returns an End that is connected to the listener at an address, and the location of the peer's memory.
func connected(dev verbs.Device, at netip.AddrPort) (*verbstest.End, verbs.RemoteMR, error) {
	e, err := verbstest.Make(dev, soakLen)
	if err != nil {
		return nil, verbs.RemoteMR{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	peer, err := e.Dial(ctx, at)
	if err != nil {
		release(e)
	}
	return e, peer, err
}

// answer accepts every connection and returns every message with its bits inverted.
func answer(dev verbs.Device, l verbs.Listener) {
	for {
		r, err := l.Accept(context.Background())
		if err != nil {
			fmt.Printf("again accept %q\n", err.Error())
			return
		}
		go func() {
			e, err := verbstest.Make(dev, soakLen)
			if err != nil {
				r.Reject([]byte(err.Error()))
				return
			}
			defer release(e)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			e.QP.PostRecv(&verbs.RecvWR{SGL: []verbs.SGE{e.MR.SGE(2*bulk, message)}})
			if r.Accept(ctx, e.QP, e.MR.Remote().Append(nil)) == nil {
				echo(e)
			}
		}()
	}
}

// echo serves a connection until it ends.
func echo(e *verbstest.End) {
	var c [4]verbs.Completion
	for {
		n, err := e.CQ.Wait(context.Background(), c[:])
		if err != nil {
			return
		}
		for i := range c[:n] {
			if c[i].Status != verbs.Success {
				return
			}
			if c[i].Op != verbs.WRRecv {
				continue
			}
			in, out := e.Mem[2*bulk:][:message], e.Mem[2*bulk+message:][:message]
			for i, v := range in {
				out[i] = ^v
			}
			e.QP.PostRecv(&verbs.RecvWR{SGL: []verbs.SGE{e.MR.SGE(2*bulk, message)}})
			if e.QP.PostSend(&verbs.SendWR{Op: verbs.WRSend, Flags: verbs.Signaled,
				SGL: []verbs.SGE{e.MR.SGE(2*bulk+message, int(c[i].ByteLen))}}) != nil {
				return
			}
		}
	}
}

// exchange opens one connection to the listener, and runs all operations over it until it ends.
func exchange(dev verbs.Device, at netip.AddrPort, did func(byteCount int)) error {
	e, peer, err := connected(dev, at)
	if err != nil {
		return err
	}
	defer release(e)
	for word := uint64(0); ; word += 2 {
		n, err := writeRead(e, peer, rand.N(verbs.TO(bulk/2)), 1+rand.IntN(bulk/2))
		if err == nil {
			did(n)
			n, err = sendBack(e)
		}
		if err == nil {
			did(n)
			err = atomics(e, peer, word)
		}
		if err != nil {
			return err
		}
		did(16)
	}
}

// do is End.Do with the timeout patience.
func do(e *verbstest.End, wr verbs.SendWR) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return e.Do(ctx, wr)
}

// writeRead writes n bytes to an offset of the peer's region, and reads them back.
func writeRead(e *verbstest.End, peer verbs.RemoteMR, to verbs.TO, n int) (int, error) {
	from, into := rand.IntN(bulk-n), bulk+rand.IntN(bulk-n)
	noise(e.Mem[from:][:n])
	clear(e.Mem[into:][:n])
	err := do(e, verbs.SendWR{Op: verbs.WRWrite, SGL: []verbs.SGE{e.MR.SGE(from, n)},
		RemoteSTag: peer.STag, RemoteTO: peer.Base + to})
	if err == nil {
		err = do(e, verbs.SendWR{Op: verbs.WRRead, SGL: []verbs.SGE{e.MR.SGE(into, n)},
			RemoteSTag: peer.STag, RemoteTO: peer.Base + to})
	}
	if err == nil {
		err = same("read back", e.Mem[into:][:n], e.Mem[from:][:n])
	}
	return 2 * n, err
}

// sendBack sends a message and receives the reply.
func sendBack(e *verbstest.End) (int, error) {
	n := 1 + rand.IntN(message)
	out, in := e.Mem[2*bulk:][:n], e.Mem[2*bulk+message:][:message]
	noise(out)
	clear(in)
	if err := e.QP.PostRecv(&verbs.RecvWR{SGL: []verbs.SGE{e.MR.SGE(2*bulk+message,
		message)}}); err != nil {
		return 0, err
	}
	if _, err := e.QP.Info(); err != nil { // once this call returns, the daemon has the receive
		return 0, err
	}
	if err := e.QP.PostSend(&verbs.SendWR{Op: verbs.WRSend, Flags: verbs.Signaled,
		SGL: []verbs.SGE{e.MR.SGE(2*bulk, n)}}); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	length := -1
	for range 2 {
		c, err := e.Next(ctx)
		if err != nil {
			return 0, err
		}
		if c.Op == verbs.WRRecv {
			length = int(c.ByteLen)
		}
	}
	if length != n {
		return 0, &wrongError{fmt.Sprintf("a message of %d bytes comes back with %d", n, length)}
	}
	for i := range out {
		out[i] = ^out[i]
	}
	return 2 * n, same("sent back", in[:n], out)
}

// atomics increments a word of the peer's region twice, and checks the returned values. No other connection uses the
// word.
func atomics(e *verbstest.End, peer verbs.RemoteMR, word uint64) error {
	for i, wr := range []verbs.SendWR{{Op: verbs.WRFetchAdd, Data: 1},
		{Op: verbs.WRCmpSwap, Compare: word + 1, CompareMask: ^uint64(0), Data: word + 2,
			Mask: ^uint64(0)}} {
		wr.SGL = []verbs.SGE{e.MR.SGE(wordAt, 8)}
		wr.RemoteSTag, wr.RemoteTO = peer.STag, peer.Base+wordAt
		if err := do(e, wr); err != nil {
			return err
		}
		want := binary.NativeEndian.AppendUint64(nil, word+uint64(i))
		if err := same(wr.Op.String(), e.Mem[wordAt:][:8], want); err != nil {
			return err
		}
	}
	return nil
}

// The export has a piece for each incarnation of the peer: data of a killed one may arrive late.
const (
	exportPieces = 16
	exportLen    = exportPieces * bulk
)

// writeExport writes to a daemon's export and reads back, until the connection ends.
func writeExport(dev verbs.Device, at netip.AddrPort, piece int, did func(byteCount int)) error {
	e, export, err := connected(dev, at)
	if err != nil {
		return err
	}
	defer release(e)
	for {
		to := verbs.TO(piece%exportPieces*bulk) + rand.N(verbs.TO(bulk/2))
		n, err := writeRead(e, export, to, 1+rand.IntN(bulk/2))
		if err != nil {
			return err
		}
		did(n)
	}
}

// maxStored limits the size of a file.
const maxStored = 1 << 20

// copier stores files that identify themselves: the incarnation of the program, a number, and noise with its own
// checksum.
type copier struct {
	dev     verbs.Device
	at      netip.AddrPort
	life, n uint64
	lost    bool // a store failed: whether the file has its content is not known
}

// round stores and fetches several times over one connection.
func (p *copier) round(did func(byteCount int)) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := transfer.Dial(ctx, p.dev, p.at, 0)
	if err != nil {
		return err
	}
	defer c.Close()
	for range 1 + rand.IntN(8) {
		n, err := p.storeAndFetch(c)
		if err != nil {
			return err
		}
		did(n)
	}
	return nil
}

func (p *copier) storeAndFetch(c *transfer.Client) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	p.n++
	content := make([]byte, 16+sha256.Size+rand.IntN(maxStored/2))
	body := content[sha256.Size:]
	noise(body)
	binary.LittleEndian.PutUint64(body, p.life)
	binary.LittleEndian.PutUint64(body[8:], p.n)
	sum := sha256.Sum256(body)
	copy(content, sum[:])
	if _, err := c.StoreFrom(ctx, "file", 0o600, bytes.NewReader(content)); err != nil {
		p.lost = true
		return 0, err
	}
	var got bytes.Buffer
	if _, err := c.FetchTo(ctx, "file", &got); err != nil {
		return 0, err
	}
	return len(content) + got.Len(), p.check(got.Bytes(), content)
}

// check accepts want, the content of the last store. It also accepts the complete content of an earlier store, if a
// kill or a failed store explains it.
func (p *copier) check(got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	if len(got) >= 16+sha256.Size {
		body := got[sha256.Size:]
		sum := sha256.Sum256(body)
		life, n := binary.LittleEndian.Uint64(body), binary.LittleEndian.Uint64(body[8:])
		if bytes.Equal(sum[:], got[:sha256.Size]) &&
			(life < p.life || life == p.life && n < p.n && p.lost) {
			return nil
		}
	}
	return same("fetch", got, want)
}
