package sim

import (
	"xwarp/bench/relay/impair"
	"xwarp/tcp/tick"
)

// badPath adapts an impair.Path to Path.
type badPath struct {
	p    *impair.Path
	pool *impair.Pool
	last *impair.Buf
}

func newPath(cfg impair.Config, seed uint64, mtu int) *badPath {
	pool := impair.NewPool(mtu + impair.FrameOverhead)
	p, err := impair.New(cfg, impair.Options{Seed: seed, LinkMTU: mtu, Pool: pool})
	if err != nil {
		panic(err)
	}
	return &badPath{p: p, pool: pool}
}

func (b *badPath) set(cfg impair.Config) {
	if err := b.p.Set(cfg); err != nil {
		panic(err)
	}
}

func (b *badPath) Push(frame []byte, now tick.Time) {
	f := b.pool.Get(len(frame))
	copy(f.Data, frame)
	b.p.Push(f, now)
}

func (b *badPath) give(f *impair.Buf) []byte {
	if b.last != nil {
		b.pool.Put(b.last)
	}
	b.last = f
	if f == nil {
		return nil
	}
	return f.Data
}

func (b *badPath) Pop(now tick.Time) []byte { return b.give(b.p.Pop(now)) }
func (b *badPath) Reply() []byte            { return b.give(b.p.Reply()) }
func (b *badPath) Deadline() tick.Time      { return b.p.Deadline() }
