package mpa

// Constants of the protocol (RFC 5044).
const (
	// MaxULPDU is the largest ULPDU in octets (4.5): with its markers an FPDU pointer still fits 16 bits.
	MaxULPDU = 64768
	// MinMULPDU is the smallest MULPDU ever given to DDP, however small the segment (4.5).
	MinMULPDU = 128
	// MinFPDU is the room in octets that the FPDU of MinMULPDU octets needs with its pad and a marker (A.5.2).
	MinFPDU = 140
	// MarkerInterval is the distance in octets between markers in the TCP stream (4.3).
	MarkerInterval = 512
	// MarkerLen is the size of a marker in octets (4.2).
	MarkerLen = 4
	// MaxFPDU is the largest FPDU in octets with all its markers.
	MaxFPDU = MaxULPDU + 2 + 2 + crcLen + 128*MarkerLen

	lengthLen = 2
	crcLen    = 4
	// HeaderKept is how many octets of a ULPDU Deliver gets to see: an untagged DDP header with RDMAP's.
	HeaderKept = 18
)

// Limits of this implementation.
const (
	// DefaultPool bounds the octets that the connections of one worker hold together: a peer that leaves a hole
	// in every stream must not exhaust the host.
	DefaultPool = 64 << 20
	// DefaultReassemblyLimit bounds the octets that one connection holds, so that one peer cannot take the whole pool.
	DefaultReassemblyLimit = 4 << 20
	// DefaultRecords bounds the FPDUs of one worker that are placed and not yet delivered.
	DefaultRecords = 1 << 18
	// DefaultRecordLimit bounds them for one connection: tiny FPDUs behind a hole cost a record each.
	DefaultRecordLimit = 1 << 15
	// maxIslands bounds the holes in one stream, which are searched and shifted for every segment that is out of order.
	maxIslands = 4096
	// maxSpan bounds how far behind the left edge an octet may lie, and with it the block table; no TCP
	// window is larger.
	maxSpan = 1 << 30
	// maxRepeats is how often an FPDU may fail its CRC before that is an error of the peer and not of the wire.
	maxRepeats = 3
	// overdraft is how many FPDUs in order a connection may have records for over all limits, so that it
	// always moves on: they are delivered as soon as the left edge has passed them, however many wait behind
	// a hole.
	overdraft = 64
	// maxDescriptors bounds the FPDUs that a sender has outstanding; a source of tiny ULPDUs waits for
	// acknowledgements.
	maxDescriptors = 1 << 17
	// maxScan bounds the markers that are read to find one FPDU start; the largest FPDU holds 128.
	maxScan = 130
)
