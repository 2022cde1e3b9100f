package verbs

import (
	"encoding/binary"
	"errors"
)

// RemoteMR describes a region to a peer, for its Reads, Writes and atomics. It is sent as private data or in a Send, in
// 32 bytes, big endian:
//
//	 0       4         5        6         8      12      16     24
//	+-------+---------+--------+---------+------+-------+------+--------+
//	| XWRM  | version | access |    0    | stag | flags | base | length |
//	+-------+---------+--------+---------+------+-------+------+--------+
//
// Bit 0 of flags is set if the region is an export of xwarpd that accepts flush requests.
type RemoteMR struct {
	Access    Access // rights of the peer: RemoteRead, RemoteWrite, RemoteAtomic
	STag      STag
	Flushable bool
	Base      TO // TO of the first byte of the region
	Length    uint64
}

// RemoteMRLen is the length of an encoded RemoteMR in bytes.
const RemoteMRLen = 32

const (
	remoteVersion = 1
	flagFlushable = 1
)

// ErrRemoteMR is returned by ParseRemoteMR.
var ErrRemoteMR = errors.New("the peer sent no RemoteMR of version 1 in its private data")

// Append appends the encoding of r to b.
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

// ParseRemoteMR decodes a RemoteMR. It fails with ErrRemoteMR if b is something else.
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
