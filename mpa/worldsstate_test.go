package mpa

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"
	"unsafe"

	"xwarp/mpa/ulpdu"
)

// The state of a run as bytes: the receiver, its pool and its sink, complete, so that the run can continue from the
// bytes alone. Two states with the same bytes continue in the same way.
//
// Fields of numbers and arrays are found by reflection, so that a field that is added later becomes part of the state.
// A new field that refers to memory is an error until this file handles it. Equivalent states are brought into one
// form, also in the receiver that continues: records and blocks are numbered in stream order, islands stand at the
// front of their array, and counters, which no decision uses, begin at 0. Unused bytes, such as those of a block that
// are not held, have a value that no stream has.

// span is the bytes of adjacent fields of numbers.
type span struct{ at, n uintptr }

// handled are the fields that hold no numbers, or numbers that need another form. The method state handles them.
var handled = map[string]bool{
	"Receiver.cfg": true, "Receiver.sink": true, "Receiver.start": true, // the same in all states
	"Receiver.inOrder": true, "Receiver.islands": true, "Receiver.islandArray": true,
	"Receiver.reassembly": true, "Receiver.pending": true, "Receiver.err": true,
	"Receiver.stats": true, // counters
	"Receiver.seg":   true, // of one call
	"part.records":   true,
}

// plan returns the spans of t's fields that are not handled.
func plan(t reflect.Type) (spans []span) {
	var add func(t reflect.Type, at uintptr, name string)
	add = func(t reflect.Type, at uintptr, name string) {
		switch t.Kind() {
		case reflect.Struct:
			for i := range t.NumField() {
				f := t.Field(i)
				if full := t.Name() + "." + f.Name; !handled[full] {
					add(f.Type, at+f.Offset, full)
				}
			}
		case reflect.Array:
			for i := range uintptr(t.Len()) {
				add(t.Elem(), at+i*t.Elem().Size(), name)
			}
		case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
			reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
			if last := len(spans) - 1; last >= 0 && spans[last].at+spans[last].n == at {
				spans[last].n += t.Size()
			} else {
				spans = append(spans, span{at, t.Size()})
			}
		default:
			panic(fmt.Sprintf("%s is a %v: how is it a part of a state?", name, t))
		}
	}
	add(t, 0, t.Name())
	return spans
}

var (
	receiverPlan = plan(reflect.TypeFor[Receiver]())
	partPlan     = plan(reflect.TypeFor[part]())
	pendingPlan  = plan(reflect.TypeFor[placedFPDU]())
)

// fieldsAre panics if the fields of t are not those of names, which the methods below handle.
func fieldsAre(t reflect.Type, names ...string) {
	for i := range t.NumField() {
		if i >= len(names) || t.Field(i).Name != names[i] {
			panic(fmt.Sprintf("%v.%s: how is it a part of a state?", t, t.Field(i).Name))
		}
	}
}

func init() {
	fieldsAre(reflect.TypeFor[reassembly](), "pool", "table", "blocks", "limit", "held")
	fieldsAre(reflect.TypeFor[record](), "start", "end", "next", "n", "count", "kind", "hdr")
	fieldsAre(reflect.TypeFor[recordList](), "head", "tail", "n")
	fieldsAre(reflect.TypeFor[Pool](), "slabs", "heldIn", "freeBlocks", "used", "limit", "records",
		"freeRecordsAt", "recordsUsed", "recordLimit", "pieces", "view")
}

// code writes a state, or reads it: one description of the order serves both.
type code struct {
	b       []byte
	at      int
	reading bool
}

// num writes or reads one number.
func (c *code) num(v *int64) {
	if c.reading {
		*v = int64(binary.LittleEndian.Uint64(c.b[c.at:]))
		c.at += 8
	} else {
		c.b = binary.LittleEndian.AppendUint64(c.b, uint64(*v))
	}
}

// raw writes b, or reads as many bytes as b has.
func (c *code) raw(b []byte) {
	if c.reading {
		c.at += copy(b, c.b[c.at:c.at+len(b)])
	} else {
		c.b = append(c.b, b...)
	}
}

func number[T ~int | ~int32 | ~int64 | ~uint | ~uint16 | ~uint32 | ~uint8](c *code, p *T) {
	v := int64(*p)
	c.num(&v)
	*p = T(v)
}

// spans writes or reads the given spans of the value at p.
func (c *code) spans(p unsafe.Pointer, spans []span) {
	for _, s := range spans {
		c.raw(unsafe.Slice((*byte)(unsafe.Add(p, s.at)), s.n))
	}
}

const unusedByte = 0xee // bytes not in use

var nothing = bytes.Repeat([]byte{unusedByte}, blockSize)

// state writes the state of the run to c, or restores it from c.
func (x *smallRun) state(c *code) {
	r := &x.r
	if c.reading {
		x.empty()
	}
	if !c.reading && r.wrongAt < r.inOrder.chainEnd {
		r.wrongAt, r.wrong = none, 0 // that FPDU has arrived right
	}
	c.spans(unsafe.Pointer(r), receiverPlan)
	if !r.pending.on && !c.reading {
		r.pending = placedFPDU{}
	}
	c.spans(unsafe.Pointer(&r.pending), pendingPlan)
	x.partState(c, &r.inOrder)
	n := len(r.islands)
	number(c, &n)
	if c.reading {
		r.islandArray = r.islandArray[:0]
		r.islands = append(r.islandArray, make([]part, n)...)
	}
	for i := range r.islands {
		x.partState(c, &r.islands[i])
	}
	number(c, &r.cfg.Pool.recordsUsed)
	x.heldState(c)
	x.deadState(c)
	number(c, &x.sink.placed)
	number(c, &x.sink.delivered)
}

// empty empties the pool, and makes what one call leaves behind unusable.
func (x *smallRun) empty() {
	r, p := &x.r, x.w.cfg.Pool
	p.records, p.freeRecordsAt, p.recordsUsed = p.records[:0], none, 0
	clear(p.heldIn)
	p.freeBlocks, p.used = p.freeBlocks[:0], 0
	for i := range p.heldIn {
		p.freeBlocks = append(p.freeBlocks, int32(len(p.heldIn)-1-i))
	}
	p.view.Reset()
	clear(r.reassembly.table)
	r.reassembly.held, r.reassembly.blocks = 0, 0
	r.stats = ReceiverStats{}
	r.seg = segment{start: -1 << 40, end: -1 << 41, kept: -1 << 42, pieceAt: -1 << 43, piece: -1}
}

// partState writes or reads a part of the stream and its records.
func (x *smallRun) partState(c *code, pt *part) {
	p := x.w.cfg.Pool
	if pt.chainStart >= 0 {
		pt.nextMarker = none // no start is looked for
	}
	c.spans(unsafe.Pointer(pt), partPlan)
	n := pt.records.n
	number(c, &n)
	i := pt.records.head
	if c.reading {
		pt.records = noRecords
	}
	for range n {
		var rec record
		if !c.reading {
			rec = p.records[i]
			i = rec.next
		}
		number(c, &rec.start)
		number(c, &rec.end)
		number(c, &rec.n)
		number(c, &rec.count)
		number(c, &rec.kind)
		c.raw(rec.hdr[:min(rec.n, HeaderKept)])
		if c.reading {
			for k := min(int(rec.n), HeaderKept); k < HeaderKept; k++ {
				rec.hdr[k] = unusedByte
			}
			rec.next = none
			p.records = append(p.records, rec)
			k := int32(len(p.records) - 1)
			pt.records.join(p, recordList{k, k, 1})
		}
	}
	if !c.reading && i != none {
		x.sink.fault = "a list of records is longer than it says"
	}
}

// heldState writes or reads the held bytes. By the account of the run, x.held, these were kept and not placed.
func (x *smallRun) heldState(c *code) {
	m, p := &x.r.reassembly, x.w.cfg.Pool
	size := len(m.table)
	number(c, &size)
	if c.reading && len(m.table) != size {
		m.table = make([]int32, size)
	}
	number(c, &m.held)
	for k := range int64(min(size, 1+len(x.w.stream)/blockSize)) {
		s := m.slot(k)
		used := 0
		if !c.reading && *s != 0 {
			used = 1 + int(p.heldIn[*s-1])
		}
		number(c, &used)
		if c.reading && used > 0 {
			b, _ := p.newBlock(true)
			*s = b + 1
			p.heldIn[b] = uint16(used - 1)
			m.blocks++
			copy(p.data(b), nothing)
		}
	}
	n := len(x.held)
	number(c, &n)
	for i := range n {
		var h [2]int64
		if !c.reading {
			h = x.held[i]
		}
		number(c, &h[0])
		number(c, &h[1])
		for h[0] < h[1] {
			b := m.at(h[0])
			if len(b) == 0 {
				panic("bytes are held in no block")
			}
			b = b[:min(int64(len(b)), h[1]-h[0])]
			c.raw(b)
			h[0] += int64(len(b))
		}
	}
}

// deadState writes or reads the layer, type and code of the errors.
func (x *smallRun) deadState(c *code) {
	for _, err := range []**ulpdu.Error{&x.r.err, &x.err} {
		v := 0
		if !c.reading && *err != nil {
			v = 1 + int((*err).Layer)<<16 + int((*err).Type)<<8 + int((*err).Code)
		}
		number(c, &v)
		if c.reading {
			*err = nil
			if v > 0 {
				*err = &ulpdu.Error{Layer: ulpdu.Layer((v - 1) >> 16),
					Type: uint8((v - 1) >> 8), Code: uint8(v - 1)}
			}
		}
	}
}

// hold updates x.held. It returns a fault if the receiver counts another number of held bytes, and "" otherwise.
func (x *smallRun) hold(c smallCase) string {
	x.held = x.held[:0]
	if x.r.err != nil {
		return "" // nothing is read any more
	}
	sum := 0
	add := func(a, b int) {
		if a >= b {
			return
		}
		sum += b - a
		if last := len(x.held) - 1; last >= 0 && x.held[last][1] == int64(a) {
			x.held[last][1] = int64(b)
		} else {
			x.held = append(x.held, [2]int64{int64(a), int64(b)})
		}
	}
	start := 0
	for seg, end := range c.ends {
		p, q := start, start+x.have[seg]
		start = end
		for i, b := range x.w.borders[1:] {
			if x.sink.placed&(1<<i) == 0 {
				add(max(p, x.w.borders[i]), min(q, b))
			}
		}
	}
	if sum != x.r.reassembly.held {
		return fmt.Sprintf("%d bytes are held, %d were kept and not placed",
			x.r.reassembly.held, sum)
	}
	return ""
}
