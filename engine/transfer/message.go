package transfer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"xwarp/ddp"
	"xwarp/engine/plain"
)

// Version of the messages. The first six octets and Error are the same in every version, so that any two versions can
// tell each other why they do not get along.
const Version = 2

// Type says what a message is.
type Type uint8

// The types of messages.
const (
	TypePut Type = 1 + iota
	TypeGet
	TypeRegion
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
)

var typeNames = [...]string{TypePut: "Put", TypeGet: "Get", TypeRegion: "Region", TypeDone: "Done",
	TypeBeat: "Beat", TypeError: "Error", TypeStat: "Stat", TypeList: "List", TypeMkdir: "Mkdir",
	TypeFetch: "Fetch", TypeStore: "Store", TypeAttr: "Attr", TypeOpened: "Opened", TypeSum: "Sum",
	TypeClose: "Close"}

// String returns the type's name.
func (t Type) String() string {
	if int(t) < len(typeNames) && t != 0 {
		return typeNames[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// Code is the reason in an Error.
type Code uint16

// The reasons.
const (
	CodeVersion  Code = 1 + iota // the peer's version is not ours
	CodeProtocol                 // a message that cannot be, or not now
	CodeTooLarge                 // more octets than the region has
	CodeEmpty                    // nothing was put yet
	CodeSum                      // SHA-256 of what arrived is not that of what was sent
	CodeInternal                 // no memory, no disk
	CodeShutdown                 // the server stops
	CodeYield                    // others need what the transfer holds
	CodeFile                     // a file or directory cannot be had; the connection goes on
	CodeKind                     // the server has a region and not a directory, or the other way round
)

// Unknown is the length in a Put whose client does not know it.
const Unknown = math.MaxUint64

// Sum is a SHA-256.
type Sum [32]byte

// Message is one message.
//
//	0..3 "xwtr"  4 version  5 type  6..7 length of what follows, then by type (big-endian):
//
//	Put, Get  0..7 length
//	Region    0..7 length  8..15 TO  16..19 STag  20..51 SHA-256  52..59 content
//	Done      0..7 length  8..39 SHA-256
//	Beat      nothing
//	Error     0..1 code    2.. text in UTF-8
//
// and those of a server with a directory, see fileBody.
type Message struct {
	Type Type
	// Put: octets that come, or Unknown. Get: octets wanted, 0 for all. Region, Done: octets of the transfer
	Length uint64
	STag   ddp.STag // Region
	TO     ddp.TO   // Region
	Sum    Sum      // Region of a get, Done
	// Region of a get: how many octets were put; where more are granted, the others are what the memory
	// has behind them. Region of a put: how many there may be; where fewer are granted, Put asks again.
	Content uint64
	Code    Code   // Error
	Text    string // Error, for people
	// Of a server with a directory.
	Path    string // Stat, List, Mkdir, Fetch, Store: below the directory
	Attr    Attr   // Store, Attr, Opened; its mode: Mkdir
	Session uint64 // Store: the connections with the same one write one file together
	Offset  uint64 // Sum: of the octets that are asked about
	Flag    bool   // Opened: something of the file was there already. Close: it is whole
}

const (
	headerLen = 8
	magic     = "xwtr"
)

var bodyLens = [...]int{TypePut: 8, TypeGet: 8, TypeRegion: 60, TypeDone: 40, TypeBeat: 0}

// Errors of ParseMessage.
var (
	ErrShort   = errors.New("message is cut short")
	ErrMagic   = errors.New("no message of this protocol: is the peer an xwarp serve, put or get?")
	ErrVersion = errors.New("the peer speaks another version of the transfer protocol: use the " +
		"same xwarp on both sides")
	ErrBody = errors.New("message of an impossible type or length")
)

// AppendMessage appends m to b.
func AppendMessage(b []byte, m *Message) []byte {
	at := len(b)
	b = append(b, magic...)
	b = append(b, Version, byte(m.Type), 0, 0)
	switch m.Type {
	case TypePut, TypeGet:
		b = binary.BigEndian.AppendUint64(b, m.Length)
	case TypeRegion:
		b = binary.BigEndian.AppendUint64(b, m.Length)
		b = binary.BigEndian.AppendUint64(b, uint64(m.TO))
		b = binary.BigEndian.AppendUint32(b, uint32(m.STag))
		b = append(b, m.Sum[:]...)
		b = binary.BigEndian.AppendUint64(b, m.Content)
	case TypeDone:
		b = binary.BigEndian.AppendUint64(b, m.Length)
		b = append(b, m.Sum[:]...)
	case TypeError:
		b = binary.BigEndian.AppendUint16(b, uint16(m.Code))
		b = append(b, cut(m.Text, MaxText)...)
	default:
		b = m.appendFile(b)
	}
	binary.BigEndian.PutUint16(b[at+6:], uint16(len(b)-at-headerLen))
	return b
}

// cut shortens s to at most n octets, between two characters.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// ParseMessage decodes the one message that b is. It fails with ErrShort, ErrMagic, ErrVersion or ErrBody; an Error is
// understood in every version.
func ParseMessage(b []byte) (m Message, err error) {
	switch {
	case len(b) < headerLen:
		return m, ErrShort
	case !bytes.HasPrefix(b, []byte(magic)):
		return m, ErrMagic
	}
	m.Type = Type(b[5])
	if v := b[4]; v != Version && m.Type != TypeError {
		return m, fmt.Errorf("%w (its version is %d, ours %d)", ErrVersion, v, Version)
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
	if m.Type == TypeError {
		if len(b) < 2 || len(b)-2 > MaxText {
			return ErrBody
		}
		m.Code, m.Text = Code(binary.BigEndian.Uint16(b)), plain.Line(string(b[2:]))
		return nil
	}
	if int(m.Type) >= len(bodyLens) {
		return m.parseFile(b)
	}
	if m.Type == 0 || len(b) != bodyLens[m.Type] {
		return ErrBody
	}
	if m.Type == TypeBeat {
		return nil
	}
	m.Length = binary.BigEndian.Uint64(b)
	switch m.Type {
	case TypeRegion:
		m.TO, m.STag = ddp.TO(binary.BigEndian.Uint64(b[8:])),
			ddp.STag(binary.BigEndian.Uint32(b[16:]))
		copy(m.Sum[:], b[20:])
		m.Content = binary.BigEndian.Uint64(b[52:])
	case TypeDone:
		copy(m.Sum[:], b[8:])
	}
	return nil
}

// RemoteError is an Error that the peer sent.
type RemoteError struct {
	Code Code
	Text string
}

// Error returns the peer's own words.
func (e *RemoteError) Error() string { return "the peer says: " + e.Text }
