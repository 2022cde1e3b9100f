package transfer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"

	"xwarp/ddp"
	"xwarp/engine/plain"
)

// Version is the version of the messages. The first six bytes and Error are the same in all versions, so that two
// versions can tell each other why they are incompatible.
const Version = 5

// Type is the type of a message.
type Type uint8

// The types of messages. 1 and 2 were requests of version 4; Error keeps its number.
const (
	TypeRegion Type = 3 + iota
	TypeDone
	TypeBeat
	TypeError
	TypeStat
	TypeList
	TypeMkdir
	TypeFetch
	TypeStore
	TypeAttr
	TypeOpened
	TypeSum
	TypeClose
	TypeBuffer
	TypeStorePack
	TypeFetchPack
	TypePacked
	TypeExtents
	TypeSetAttr
	TypeSync
	TypeStoreBytes
	TypeFetchBytes
	TypeBytes
)

var typeNames = [...]string{TypeRegion: "Region", TypeDone: "Done",
	TypeBeat: "Beat", TypeError: "Error", TypeStat: "Stat", TypeList: "List", TypeMkdir: "Mkdir",
	TypeFetch: "Fetch", TypeStore: "Store", TypeAttr: "Attr", TypeOpened: "Opened", TypeSum: "Sum",
	TypeClose: "Close", TypeBuffer: "Buffer", TypeStorePack: "StorePack",
	TypeFetchPack: "FetchPack", TypePacked: "Packed", TypeExtents: "Extents",
	TypeSetAttr: "SetAttr", TypeSync: "Sync",
	TypeStoreBytes: "StoreBytes", TypeFetchBytes: "FetchBytes", TypeBytes: "Bytes"}

// String returns the type's name.
func (t Type) String() string {
	if t.isKnown() {
		return typeNames[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}

func (t Type) isKnown() bool { return int(t) < len(typeNames) && typeNames[t] != "" }

// Code is the reason in an Error.
type Code uint16

// The reasons.
const (
	CodeVersion  Code = 1 + iota // the peer has another version
	CodeProtocol                 // an invalid or unexpected message
	CodeTooLarge                 // more bytes or files than allowed, or too much for one listing
	_
	CodeSum      // XXH64 of the received bytes differs from the sender's
	CodeInternal // another failure of the sender
	CodeShutdown // the server is stopping
	CodeYield    // other clients need the connection or the file's name
	CodeFile     // a file or directory is not available; the connection continues
)

// Sum is a SHA-256.
type Sum [32]byte

// Message is one message.
//
//	0..3 "xwtr"  4 version  5 type  6..7 length of what follows, then by type (big-endian):
//
//	Region             0..7 length  8..11 STag
//	Done, Beat         nothing
//	Error              0..1 code  2.. text in UTF-8
//	Stat, List, Fetch  0.. path
//	Mkdir, Store       0..31 attr  32..39 session  40.. path
//	SetAttr            0..31 attr  32.. path
//	Attr               0..31 attr
//	Opened             0..31 attr  32 resumed
//	Sum                0..7 length  8..15 offset  16..47 SHA-256, in the answer
//	StoreBytes         0..7 length  8..15 offset  16..23 place  24..31 XXH64
//	FetchBytes         0..7 length  8..15 offset  16..23 place
//	Bytes              0..7 length  8..15 offset  16..23 XXH64, of FetchBytes
//	Close              0 commit
//	Buffer, Extents,   nothing
//	Sync
//	StorePack          0..7 length  8..15 XXH64
//	FetchPack          0..7 length
//	Packed             0..7 length  8..15 XXH64  16..79 one bit for each file, the lowest bit of a byte first
//
// An attr is 0 kind, 1 flags, 2..3 mode, 4..11 length, 12..19 seconds and 20..23 nanoseconds of the last change, 24..31
// node.
type Message struct {
	Type    Type
	Length  uint64   // Region, Sum, StoreBytes, FetchBytes, Bytes, StorePack, FetchPack, Packed: bytes
	STag    ddp.STag // Region
	Sum     Sum      // Sum
	Check   uint64   // StoreBytes, Bytes in answer to FetchBytes, StorePack, Packed: XXH64
	Code    Code     // Error
	Text    string   // Error, for people
	Path    string   // Stat, List, Mkdir, Fetch, Store, SetAttr: below the directory
	Attr    Attr     // Store, Attr, Opened; its mode: Mkdir
	Session uint64   // Store: connections with the same session write one file together
	Offset  uint64   // Sum, StoreBytes, FetchBytes, Bytes: offset in the file
	Place   uint64   // StoreBytes, FetchBytes: offset in the server's buffer
	Flag    bool     // Opened: a part of the file already existed. Close: it is complete
	Taken   Taken    // Packed: the files stored, or included in the pack
}

const (
	headerLen = 8
	magic     = "xwtr"
)

// Errors of ParseMessage.
var (
	ErrShort   = errors.New("message is cut short")
	ErrMagic   = errors.New("not a message of this protocol: is the peer xwarp serve or cp?")
	ErrVersion = errors.New("the peer speaks another version of the transfer protocol: use the " +
		"same xwarp on both sides")
	ErrBody = errors.New("message with an invalid type or length")
)

// fields returns the fields after the header, in wire order. The text of an Error, or a path, follows them.
func (m *Message) fields() []any {
	switch m.Type {
	case TypeRegion:
		return []any{&m.Length, &m.STag}
	case TypeStorePack:
		return []any{&m.Length, &m.Check}
	case TypeFetchPack:
		return []any{&m.Length}
	case TypePacked:
		return []any{&m.Length, &m.Check, &m.Taken}
	case TypeError:
		return []any{&m.Code}
	case TypeMkdir, TypeStore:
		return []any{&m.Attr, &m.Session}
	case TypeAttr, TypeSetAttr:
		return []any{&m.Attr}
	case TypeOpened:
		return []any{&m.Attr, &m.Flag}
	case TypeSum:
		return []any{&m.Length, &m.Offset, &m.Sum}
	case TypeStoreBytes:
		return []any{&m.Length, &m.Offset, &m.Place, &m.Check}
	case TypeFetchBytes:
		return []any{&m.Length, &m.Offset, &m.Place}
	case TypeBytes:
		return []any{&m.Length, &m.Offset, &m.Check}
	case TypeClose:
		return []any{&m.Flag}
	}
	return nil
}

// hasPath reports whether the message ends with a path.
func (m *Message) hasPath() bool {
	switch m.Type {
	case TypeStat, TypeList, TypeFetch, TypeMkdir, TypeStore, TypeSetAttr:
		return true
	}
	return false
}

// AppendMessage appends m to b.
func AppendMessage(b []byte, m *Message) []byte {
	at := len(b)
	b = append(b, magic...)
	b = append(b, Version, byte(m.Type), 0, 0)
	for _, f := range m.fields() {
		b, _ = binary.Append(b, binary.BigEndian, f)
	}
	if m.Type == TypeError {
		b = append(b, cut(m.Text, MaxText)...)
	} else if m.hasPath() {
		b = append(b, m.Path...)
	}
	binary.BigEndian.PutUint16(b[at+6:], uint16(len(b)-at-headerLen))
	return b
}

// cut shortens s to at most n bytes, between two characters.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// versionError is the error of a message of another version.
type versionError struct{ version byte }

func (e *versionError) Error() string {
	return fmt.Sprintf("%v (its version is %d, ours %d)", ErrVersion, e.version, Version)
}

func (e *versionError) Is(err error) bool { return err == ErrVersion }

// ParseMessage decodes the message b. It fails with ErrShort, ErrMagic, ErrVersion or ErrBody. An Error is decoded in
// every version.
func ParseMessage(b []byte) (m Message, err error) {
	switch {
	case len(b) < headerLen:
		return m, ErrShort
	case !bytes.HasPrefix(b, []byte(magic)):
		return m, ErrMagic
	}
	m.Type = Type(b[5])
	if v := b[4]; v != Version && m.Type != TypeError {
		return m, &versionError{v}
	}
	n, body := int(binary.BigEndian.Uint16(b[6:])), b[headerLen:]
	if n > len(body) {
		return m, ErrShort
	}
	if n < len(body) {
		return m, ErrBody
	}
	return m, m.parseBody(body)
}

func (m *Message) parseBody(b []byte) error {
	if !m.Type.isKnown() {
		return ErrBody
	}
	for _, f := range m.fields() {
		n, err := binary.Decode(b, binary.BigEndian, f)
		if _, flag := f.(*bool); err != nil || flag && b[0] > 1 {
			return ErrBody
		}
		b = b[n:]
	}
	switch {
	case m.Type == TypeError && len(b) <= MaxText:
		m.Text = plain.Line(string(b))
	case m.hasPath() && len(b) > 0 && len(b) <= MaxPath && !bytes.Contains(b, []byte{0}):
		m.Path = string(b)
	case m.hasPath() || len(b) > 0:
		return ErrBody
	}
	return nil
}

// RemoteError is an Error sent by the peer.
type RemoteError struct {
	Code Code
	Text string
}

// Error returns the peer's text.
func (e *RemoteError) Error() string { return "the peer says: " + e.Text }
