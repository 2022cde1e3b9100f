package verbs

import (
	"encoding/binary"
	"errors"
)

// RemoteMR is a region as a peer sees it: what it needs for Reads, Writes and atomics. In 32 bytes, big endian, it
// travels as private data or in a Send:
//
//	 0       4         5        6         8      12      16     24
//	+-------+---------+--------+---------+------+-------+------+--------+
//	| XWRM  | version | access |    0    | stag | flags | base | length |
//	+-------+---------+--------+---------+------+-------+------+--------+
//
// flags has bit 0 when the region is an export of xwarpd that takes flush requests.
type RemoteMR struct {
	Access    Access // what the peer may do: RemoteRead, RemoteWrite, RemoteAtomic
	STag      STag
	Flushable bool
	Base      TO // of the first byte
	Length    uint64
}

// RemoteMRLen is the bytes of a RemoteMR.
const RemoteMRLen = 32

const (
	remoteVersion = 1
	flagFlushable = 1
)

// ErrRemoteMR is returned by ParseRemoteMR.
var ErrRemoteMR = errors.New("the peer sent no RemoteMR of version 1 in its private data")

// Append appends the bytes of r.
func (r RemoteMR) Append(b []byte) []byte {
	flags := uint32(0)
	if r.Flushable {
		flags = flagFlushable
	}
	b = append(b, 'X', 'W', 'R', 'M', remoteVersion, byte(r.Access), 0, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(r.STag))
	b = binary.BigEndian.AppendUint32(b, flags)
	b = binary.BigEndian.AppendUint64(b, uint64(r.Base))
	return binary.BigEndian.AppendUint64(b, r.Length)
}

// ParseRemoteMR reads what Append wrote. It fails with ErrRemoteMR.
func ParseRemoteMR(b []byte) (r RemoteMR, err error) {
	if len(b) != RemoteMRLen || string(b[:4]) != "XWRM" || b[4] != remoteVersion {
		return r, ErrRemoteMR
	}
	return RemoteMR{
		Access: Access(b[5]), STag: STag(binary.BigEndian.Uint32(b[8:])),
		Flushable: binary.BigEndian.Uint32(b[12:])&flagFlushable != 0,
		Base:      TO(binary.BigEndian.Uint64(b[16:])), Length: binary.BigEndian.Uint64(b[24:]),
	}, nil
}
