package transfer

import (
	"encoding/binary"
	"strings"
	"time"
)

// Kind is the type of a file.
type Kind uint8

// The kinds.
const (
	KindNone  Kind = iota // does not exist
	KindFile              // a regular file
	KindDir               // a directory
	KindOther             // not copied: devices, sockets, pipes, links that lead nowhere or out of the directory
)

// Flags of a file.
type Flags uint8

// The flags.
const (
	FlagSparse Flags = 1 << iota // it has holes
	FlagLinked                   // it has several hard links
	FlagStream                   // its length is unknown until its end; only of a Store
	FlagLink                     // it is a symbolic link, and the rest describes its target; only in a List
)

// Attr are the attributes of a file, in the order of the wire.
type Attr struct {
	Kind     Kind
	Flags    Flags
	Mode     uint16 // permissions, set-user-ID, set-group-ID and sticky bit
	Length   uint64
	Modified Time   // of the last change
	Node     uint64 // identifies a directory on its host, to detect a link to a directory above it
}

// Time is a time of a file, which may be long before 1970 and long after 2262.
type Time struct {
	Seconds     int64 // since 1970
	Nanoseconds uint32
}

// Time returns t as a Go time.
func (t Time) Time() time.Time { return time.Unix(t.Seconds, int64(t.Nanoseconds)) }

// Entry is a name in a directory.
type Entry struct {
	Name string
	Attr Attr
}

// attrLen is the length of an Attr on the wire.
const attrLen = 32

// entryLen is the length of an entry besides its name: attr, and length of the name in 2 bytes.
const entryLen = attrLen + 2

// appendEntry appends an entry to a listing.
func appendEntry(b []byte, e *Entry) []byte {
	b, _ = binary.Append(b, binary.BigEndian, &e.Attr)
	b = binary.BigEndian.AppendUint16(b, uint16(len(e.Name)))
	return append(b, e.Name...)
}

// parseEntry reads one entry, and returns the remaining bytes.
func parseEntry(b []byte) (e Entry, rest []byte, err error) {
	at, err := binary.Decode(b, binary.BigEndian, &e.Attr)
	if err != nil || len(b) < entryLen {
		return e, nil, ErrBody
	}
	n := int(binary.BigEndian.Uint16(b[at:]))
	if n == 0 || n > len(b)-entryLen {
		return e, nil, ErrBody
	}
	e.Name = string(b[entryLen : entryLen+n])
	return e, b[entryLen+n:], nil
}

// parseListing reads the entries that appendEntry wrote. It refuses names that are not names in the listed directory.
func parseListing(b []byte) (list []Entry, err error) {
	for len(b) > 0 {
		var e Entry
		if e, b, err = parseEntry(b); err != nil {
			return nil, err
		}
		if e.Name == "." || e.Name == ".." || strings.ContainsAny(e.Name, "/\x00") {
			return nil, ErrBody // otherwise the server could make the client write elsewhere
		}
		list = append(list, e)
	}
	return list, nil
}
