package havoc

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
)

// longest is the maximum length of an input in bytes.
const longest = 1 << 14

// edges are boundary values.
var edges = [...]uint64{0, 1, 7, 16, 64, 127, 128, 255, 256, 512, 1024, 4096, 32767, 32768,
	65535, 65536, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1<<63 - 1, 1 << 63, 1<<64 - 1}

// change returns a mutation of v, which may use parts of other, the same argument in another input. It writes to
// neither.
func change(r *rand.Rand, v, other reflect.Value) reflect.Value {
	c := reflect.New(v.Type()).Elem()
	switch v.Kind() {
	case reflect.Slice:
		c.SetBytes(mutateBytes(r, v.Bytes(), other.Bytes()))
	case reflect.String:
		c.SetString(string(mutateBytes(r, []byte(v.String()), []byte(other.String()))))
	case reflect.Bool:
		c.SetBool(r.IntN(2) == 0)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uint:
		c.SetUint(number(r, v.Uint(), other.Uint()))
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Int:
		c.SetInt(int64(number(r, uint64(v.Int()), uint64(other.Int()))))
	default:
		panic(fmt.Sprintf("havoc: cannot change %v", v.Type()))
	}
	return c
}

// number returns a mutation of v. The setters of package reflect truncate it to the width of the type.
func number(r *rand.Rand, v, other uint64) uint64 {
	switch r.IntN(6) {
	case 0:
		return v ^ 1<<r.IntN(64)
	case 1:
		return v + uint64(r.IntN(33)) - 16
	case 2:
		return edges[r.IntN(len(edges))]
	case 3:
		return r.Uint64()
	case 4:
		return other
	}
	return v
}

// mutateBytes returns a copy of b after 1, 2, 4, 8 or 16 changes, cut to the maximum length.
func mutateBytes(r *rand.Rand, b, other []byte) []byte {
	b = slices.Clone(b)
	for range 1 << r.IntN(5) {
		if len(b) == 0 {
			b = append(b, byte(r.Uint32()))
		}
		at := r.IntN(len(b))
		n := 1 + r.IntN(min(len(b)-at, 1<<r.IntN(8)))
		switch r.IntN(10) {
		case 0:
			b[at] ^= 1 << r.IntN(8)
		case 1:
			b[at] = byte(r.Uint32())
		case 2:
			b[at] += byte(r.IntN(33) - 16)
		case 3:
			putEdge(r, b[at:])
		case 4:
			b = slices.Delete(b, at, at+n)
		case 5:
			b = b[:at]
		case 6: // insert a copy of existing bytes
			b = slices.Insert(b, r.IntN(len(b)+1), slices.Clone(b[at:at+n])...)
		case 7:
			copy(b[r.IntN(len(b)):], slices.Clone(b[at:at+n]))
		case 8:
			for i := range n {
				b[at+i] = byte(r.Uint32())
			}
		case 9:
			if len(other) > 0 {
				b = append(b[:at], other[r.IntN(len(other)):]...)
			}
		}
	}
	return b[:min(len(b), longest)]
}

// putEdge writes one of edges, or a value next to it, in one to eight bytes and either order.
func putEdge(r *rand.Rand, b []byte) {
	v := edges[r.IntN(len(edges))] + uint64(r.IntN(3)) - 1
	n := min(len(b), 1<<r.IntN(4))
	for i := range n {
		b[i] = byte(v >> (8 * i))
	}
	if r.IntN(2) == 0 {
		slices.Reverse(b[:n])
	}
}
