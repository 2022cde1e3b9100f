package transfer

import (
	"encoding/binary"
	"strings"
	"time"

	"xwarp/ddp"
)

// Kind is what a name leads to.
type Kind uint8

// The kinds.
const (
	KindNone  Kind = iota // nothing is there
	KindFile              // a regular file
	KindDir               // a directory
	KindOther             // what is not copied: links, devices, sockets, pipes
)

// Attr is what is known of a file besides its octets.
type Attr struct {
	Kind     Kind
	Mode     uint16 // permissions
	Length   uint64
	Modified int64 // nanoseconds since 1970
}

// Time returns when the file was written.
func (a *Attr) Time() time.Time { return time.Unix(0, a.Modified) }

// Lengths of attributes, and of what is in front of a path.
const (
	attrLen  = 19
	storeLen = attrLen + 8
)

func (a *Attr) append(b []byte) []byte {
	b = append(b, byte(a.Kind))
	b = binary.BigEndian.AppendUint16(b, a.Mode)
	b = binary.BigEndian.AppendUint64(b, a.Length)
	return binary.BigEndian.AppendUint64(b, uint64(a.Modified))
}

func parseAttr(b []byte) Attr {
	return Attr{
		Kind(b[0]), binary.BigEndian.Uint16(b[1:]), binary.BigEndian.Uint64(b[3:]),
		int64(binary.BigEndian.Uint64(b[11:])),
	}
}

// appendFile appends what follows the header, by type. An attr is 0 kind, 1..2 mode, 3..10 length, 11..18 time
// of the last change:
//
//	Stat, List, Fetch  0.. path
//	Mkdir, Store       0..18 attr  19..26 session  27.. path
//	Attr               0..18 attr
//	Opened             0..18 attr  19 resumed  20..27 TO  28..31 STag
//	Sum                0..7 length  8..15 offset  16..47 SHA-256, in the answer
//	Close              0 commit
func (m *Message) appendFile(b []byte) []byte {
	switch m.Type {
	case TypeStat, TypeList, TypeFetch:
		return append(b, m.Path...)
	case TypeMkdir, TypeStore:
		b = binary.BigEndian.AppendUint64(m.Attr.append(b), m.Session)
		return append(b, m.Path...)
	case TypeAttr:
		return m.Attr.append(b)
	case TypeOpened:
		b = append(m.Attr.append(b), flag(m.Flag))
		b = binary.BigEndian.AppendUint64(b, uint64(m.TO))
		return binary.BigEndian.AppendUint32(b, uint32(m.STag))
	case TypeSum:
		b = binary.BigEndian.AppendUint64(b, m.Length)
		b = binary.BigEndian.AppendUint64(b, m.Offset)
		return append(b, m.Sum[:]...)
	case TypeClose:
		return append(b, flag(m.Flag))
	}
	return b
}

func flag(on bool) byte {
	if on {
		return 1
	}
	return 0
}

// parseFile reads what appendFile appended.
func (m *Message) parseFile(b []byte) error {
	want := 0
	switch m.Type {
	case TypeStat, TypeList, TypeFetch:
		return m.parsePath(b)
	case TypeMkdir, TypeStore:
		if len(b) < storeLen {
			return ErrBody
		}
		m.Attr, m.Session = parseAttr(b), binary.BigEndian.Uint64(b[attrLen:])
		return m.parsePath(b[storeLen:])
	case TypeAttr:
		want = attrLen
	case TypeOpened:
		want = attrLen + 13
	case TypeSum:
		want = 16 + len(m.Sum)
	case TypeClose:
		want = 1
	default:
		return ErrBody
	}
	if len(b) != want {
		return ErrBody
	}
	switch m.Type {
	case TypeAttr:
		m.Attr = parseAttr(b)
	case TypeOpened:
		m.Attr, b = parseAttr(b), b[attrLen:]
		m.Flag, m.TO = b[0] == 1, ddp.TO(binary.BigEndian.Uint64(b[1:]))
		m.STag = ddp.STag(binary.BigEndian.Uint32(b[9:]))
		return bit(b[0])
	case TypeSum:
		m.Length, m.Offset = binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
		m.Sum = Sum(b[16:])
	case TypeClose:
		m.Flag = b[0] == 1
		return bit(b[0])
	}
	return nil
}

// bit checks an octet that is 0 or 1.
func bit(b byte) error {
	if b > 1 {
		return ErrBody
	}
	return nil
}

func (m *Message) parsePath(b []byte) error {
	m.Path = string(b)
	if m.Path == "" || len(m.Path) > MaxPath || strings.Contains(m.Path, "\x00") {
		return ErrBody
	}
	return nil
}

// Entry is a name in a directory.
type Entry struct {
	Name string
	Attr Attr
}

// entryLen is what an entry of a listing takes besides its name: attr, and length of the name in 2 octets.
const entryLen = attrLen + 2

// appendEntry appends an entry to a listing.
func appendEntry(b []byte, e *Entry) []byte {
	b = binary.BigEndian.AppendUint16(e.Attr.append(b), uint16(len(e.Name)))
	return append(b, e.Name...)
}

// parseListing reads what appendEntry appended.
func parseListing(b []byte) (list []Entry, err error) {
	for len(b) > 0 {
		if len(b) < entryLen {
			return nil, ErrBody
		}
		n := int(binary.BigEndian.Uint16(b[attrLen:]))
		if n == 0 || n > len(b)-entryLen {
			return nil, ErrBody
		}
		e := Entry{string(b[entryLen : entryLen+n]), parseAttr(b)}
		if e.Name == "." || e.Name == ".." || strings.ContainsAny(e.Name, "/\x00") {
			return nil, ErrBody // or the server would have the client write elsewhere
		}
		list = append(list, e)
		b = b[entryLen+n:]
	}
	return list, nil
}
