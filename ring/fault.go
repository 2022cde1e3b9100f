package ring

import (
	"math/rand/v2"
	"time"
)

// Rates are the probabilities, 0 to 1, of what may happen to a packet. They are tried in this order; at most
// one happens.
type Rates struct {
	Drop      float64
	Duplicate float64 // the copy follows the packet
	Corrupt   float64 // one octet after the Ethernet header is changed
	Delay     float64 // later packets overtake it
}

// FaultConfig configures a Fault.
type FaultConfig struct {
	Seed    uint64
	Rx, Tx  Rates
	Batches int // a delayed packet comes that many calls of Recv or Flush later; 0: 1
}

// FaultStats counts faults of one direction.
type FaultStats struct{ Dropped, Duplicated, Corrupted, Delayed uint64 }

// Fault is a Port that mistreats packets, the same way for the same seed and calls. The frame account of the
// Port below stays exact: a dropped packet is released, a delayed one stays with the reader or writer, a
// received copy is no UMEM memory.
type Fault struct {
	Port
	cfg    FaultConfig
	rnd    *rand.Rand
	rx, tx FaultStats

	late   []lateRx
	lateTx []lateTx
	ready  []Packet // to be received before anything else
	spare  [][]byte // memory for copies
}

type lateRx struct {
	p     Packet
	calls int
}

type lateTx struct {
	b     TxBuf
	n     int
	calls int
}

// NewFault wraps p.
func NewFault(p Port, cfg FaultConfig) *Fault {
	if cfg.Batches <= 0 {
		cfg.Batches = 1
	}
	return &Fault{Port: p, cfg: cfg, rnd: rand.New(rand.NewPCG(cfg.Seed, 0x9e3779b97f4a7c15))}
}

// FaultStats returns what happened to received and to transmitted packets.
func (f *Fault) FaultStats() (rx, tx FaultStats) { return f.rx, f.tx }

type faultKind uint8

const (
	faultNone faultKind = iota
	faultDrop
	faultDuplicate
	faultCorrupt
	faultDelay
)

// draw decides about one packet. It uses one random number whatever the rates are.
func (f *Fault) draw(r *Rates) faultKind {
	x := f.rnd.Float64()
	for i, p := range [...]float64{r.Drop, r.Duplicate, r.Corrupt, r.Delay} {
		if x < p {
			return faultDrop + faultKind(i)
		}
		x -= p
	}
	return faultNone
}

// Recv is Port.Recv with faults.
func (f *Fault) Recv(batch []Packet) int {
	got := copy(batch, f.ready)
	f.ready = f.ready[:copy(f.ready, f.ready[got:])]
	for i := range f.late {
		f.late[i].calls--
	}
	for len(f.late) > 0 && f.late[0].calls < 0 && got < len(batch) {
		batch[got] = f.late[0].p
		got++
		f.late = f.late[:copy(f.late, f.late[1:])]
	}
	if got == len(batch) {
		return got
	}
	fresh := batch[got:]
	for i := range f.Port.Recv(fresh) {
		p := fresh[i]
		if f.receive(&p) {
			batch[got] = p
			got++
		}
	}
	n := copy(batch[got:], f.ready)
	f.ready = f.ready[:copy(f.ready, f.ready[n:])]
	return got + n
}

// receive does to p what is drawn and reports whether it is received now.
func (f *Fault) receive(p *Packet) bool {
	switch f.draw(&f.cfg.Rx) {
	case faultDrop:
		f.rx.Dropped++
		f.Port.Release(p)
		return false
	case faultDuplicate:
		f.rx.Duplicated++
		f.ready = append(f.ready, f.duplicate(p))
	case faultCorrupt:
		f.rx.Corrupted++
		f.corruptRx(p)
	case faultDelay:
		if len(f.late) < MaxDelayed {
			f.rx.Delayed++
			f.late = append(f.late, lateRx{*p, f.cfg.Batches})
			return false
		}
	}
	return true
}

// duplicate copies p to memory of f.
func (f *Fault) duplicate(p *Packet) Packet {
	var mem []byte
	if n := len(f.spare); n > 0 {
		mem, f.spare = f.spare[n-1], f.spare[:n-1]
	}
	d := *p
	d.mem, d.home = p.AppendTo(mem[:0]), f
	off := uint32(0)
	for i := range d.frags[:d.n] {
		d.frags[i].off = off
		off += d.frags[i].n
	}
	return d
}

func (f *Fault) corruptRx(p *Packet) {
	if p.Len() <= ethHeader {
		return
	}
	at := ethHeader + f.rnd.IntN(p.Len()-ethHeader)
	for i := range p.NumFrags() {
		b := p.Frag(i)
		if at < len(b) {
			b[at] ^= f.pattern()
			return
		}
		at -= len(b)
	}
}

func (f *Fault) pattern() byte { return byte(1 + f.rnd.IntN(255)) }

// Release is Port.Release; copies come home.
func (f *Fault) Release(p *Packet) {
	if p.home != f {
		f.Port.Release(p)
		return
	}
	if p.n != 0 {
		f.spare = append(f.spare, p.mem)
	}
	p.n, p.size, p.mem = 0, 0, nil
}

// Send is Port.Send with faults.
func (f *Fault) Send(b TxBuf, n int) {
	switch f.draw(&f.cfg.Tx) {
	case faultDrop:
		f.tx.Dropped++
		f.Port.CancelTx(b)
		return
	case faultDuplicate:
		if f.sendTwice(b, n) {
			f.tx.Duplicated++
			return
		}
	case faultCorrupt:
		if n > ethHeader && n <= len(b.Data) {
			f.tx.Corrupted++
			b.Data[ethHeader+f.rnd.IntN(n-ethHeader)] ^= f.pattern()
		}
	case faultDelay:
		if len(f.lateTx) < MaxDelayed {
			f.tx.Delayed++
			f.lateTx = append(f.lateTx, lateTx{b, n, f.cfg.Batches})
			return
		}
	}
	f.Port.Send(b, n)
}

// sendTwice needs a second slot; without one it does nothing.
func (f *Fault) sendTwice(b TxBuf, n int) bool {
	if n < 0 || n > len(b.Data) {
		return false
	}
	c, ok := f.Port.AllocTx()
	if !ok {
		return false
	}
	copy(c.Data, b.Data[:n])
	f.Port.Send(b, n)
	f.Port.Send(c, n)
	return true
}

// Flush is Port.Flush, after the delayed frames whose time has come.
func (f *Fault) Flush() State {
	due := 0
	for i := range f.lateTx {
		l := &f.lateTx[i]
		if l.calls--; l.calls < 0 {
			f.Port.Send(l.b, l.n)
			due = i + 1
		}
	}
	f.lateTx = f.lateTx[:copy(f.lateTx, f.lateTx[due:])]
	return f.Port.Flush()
}

// Wait is Port.Wait. It does not sleep while packets are kept back, so that calls go on until their time comes.
func (f *Fault) Wait(timeout time.Duration, extraFD int) Ready {
	if len(f.ready)+len(f.late)+len(f.lateTx) == 0 {
		return f.Port.Wait(timeout, extraFD)
	}
	r := f.Port.Wait(0, extraFD)
	if len(f.ready)+len(f.late) != 0 {
		r |= ReadyRx
	}
	return r
}

// Late returns how many packets are kept back in both directions.
func (f *Fault) Late() int { return len(f.ready) + len(f.late) + len(f.lateTx) }

// Close forgets the packets that are kept back, and closes the Port below.
func (f *Fault) Close() error {
	f.late, f.lateTx, f.ready = nil, nil, nil
	return f.Port.Close()
}
