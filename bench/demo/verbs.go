package demo

import (
	"context"
	"fmt"
	"time"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/engine/verbs"
)

// Indexes of the regions in end.buffers: A has source and sink, B has target and inbox.
const (
	source = 0
	sink   = 1
	target = 0
	inbox  = 1
)

// Names of the verbs in the output.
const (
	nameWrite = "RDMA Write"
	nameRead  = "RDMA Read"
	nameSend  = "Send"
)

// piece returns offset and length of work request i.
func (r *run) piece(i int) (off, n int64) {
	off = int64(i) * r.each
	return off, min(r.each, r.cfg.Size-off)
}

// pump posts one work request for each piece and waits for all completions. At most depth requests are under way.
func (r *run) pump(ctx context.Context, verb string, wr func(off, n int64) verbs.SendWR) error {
	posted, done := 0, int64(0)
	r.progress(verb, 0)
	for ended := 0; ended < r.requests; ended++ {
		for ; posted < r.requests && posted-ended < depth; posted++ {
			w := wr(r.piece(posted))
			w.ID, w.Flags = uint64(posted), rdmap.Signaled
			if err := r.a.QP.PostSend(&w); err != nil {
				return fmt.Errorf("%s: post of work request %d: %w", verb, posted, err)
			}
		}
		c, err := r.a.await(ctx, r.a.SendCQ)
		if err != nil {
			return fmt.Errorf("%s: %w", verb, err)
		}
		_, n := r.piece(int(c.ID))
		done += n
		r.progress(verb, done)
	}
	return nil
}

func (r *run) write(ctx context.Context) error {
	return r.tagged(ctx, nameWrite, rdmap.WRWrite, source)
}

func (r *run) read(ctx context.Context) error {
	return r.tagged(ctx, nameRead, rdmap.WRRead, sink)
}

// tagged moves Config.Size bytes between a region of A and the target region of B: op decides the direction.
func (r *run) tagged(ctx context.Context, verb string, op verbs.WROp, local int) error {
	return r.pump(ctx, verb, func(off, n int64) verbs.SendWR {
		return verbs.SendWR{
			Op: op, SGL: []verbs.SGE{r.a.buffers[local].SGE(int(off), int(n))},
			RemoteSTag: r.b.buffers[target].STag(), RemoteTO: ddp.TO(off),
		}
	})
}

// sendMessage moves the source region to B's inbox by one Send per work request. It then waits for B's receives and
// checks that they complete in the order in which they were posted.
func (r *run) sendMessage(ctx context.Context) error {
	err := r.pump(ctx, nameSend, func(off, n int64) verbs.SendWR {
		return verbs.SendWR{Op: rdmap.WRSend, SGL: []verbs.SGE{r.a.buffers[source].SGE(int(off),
			int(n))}}
	})
	if err != nil {
		return err
	}
	for i := range r.requests {
		c, err := r.b.await(ctx, r.b.RecvCQ)
		if err != nil {
			return fmt.Errorf("%s: %w", nameSend, err)
		}
		if _, n := r.piece(i); c.ID != uint64(i) || int64(c.ByteLen) != n {
			return fmt.Errorf("%s: receive %d completed with %d bytes, want receive %d with %d",
				nameSend, c.ID, c.ByteLen, i, n)
		}
	}
	return nil
}

// postReceives posts a receive at B for every later Send, before the connection exists.
func (r *run) postReceives() error {
	for i := range r.requests {
		off, n := r.piece(i)
		wr := verbs.RecvWR{ID: uint64(i),
			SGL: []verbs.SGE{r.b.buffers[inbox].SGE(int(off), int(n))}}
		if err := r.b.QP.PostRecv(&wr); err != nil {
			return fmt.Errorf("receive %d of %d: %w", i, r.requests, err)
		}
	}
	return nil
}

func (r *run) progress(verb string, done int64) {
	if r.cfg.Progress != nil {
		r.cfg.Progress(verb, done, r.cfg.Size)
	}
}

// timed runs one verb and verifies the bytes that it moved.
func (r *run) timed(ctx context.Context, name string, move func(context.Context) error, src,
	dst []byte) error {
	start := time.Now()
	if err := move(ctx); err != nil {
		return err
	}
	v := Transfer{Name: name, Bytes: r.cfg.Size, Seconds: time.Since(start).Seconds()}
	// The workers wrote the memory: reading the state of both orders those writes before this goroutine's reads.
	r.snapshot()
	v.rate()
	v.SourceSHA256, v.TargetSHA256 = sum(src), sum(dst)
	v.OK = v.SourceSHA256 == v.TargetSHA256
	r.res.Verbs = append(r.res.Verbs, v)
	if !v.OK {
		return fmt.Errorf("%s: %w", name, differ(src, dst))
	}
	return nil
}
