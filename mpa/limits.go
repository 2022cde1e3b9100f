package mpa

// Constants of the protocol (RFC 5044).
const (
	// MaxULPDU is the largest ULPDU in bytes (4.5). The FPDU pointer of each marker in such an FPDU still fits 16 bits.
	MaxULPDU = 64768
	// MinMULPDU is the smallest MULPDU given to DDP, even if the segment is smaller (4.5).
	MinMULPDU = 128
	// MinFPDU is the size in bytes of the FPDU of MinMULPDU bytes with its pad and a marker (A.5.2).
	MinFPDU = 140
	// MarkerInterval is the distance in bytes between markers in the TCP stream (4.3).
	MarkerInterval = 512
	// MarkerLen is the size of a marker in bytes (4.2).
	MarkerLen = 4
	// MaxFPDU is the largest FPDU in bytes with all its markers.
	MaxFPDU = MaxULPDU + 2 + 2 + crcLen + 128*MarkerLen

	lengthLen = 2
	crcLen    = 4
	// HeaderKept is the maximum number of bytes of a ULPDU that are passed to Deliver: an untagged DDP header with
	// RDMAP's fields.
	HeaderKept = 18
)

// Limits of this implementation.
const (
	// DefaultPool bounds the bytes that the connections of one worker hold together. A peer that leaves a hole in every
	// stream must not exhaust the host.
	DefaultPool = 64 << 20
	// DefaultReassemblyLimit bounds the bytes that one connection holds, so that one peer cannot occupy the whole pool.
	DefaultReassemblyLimit = 4 << 20
	// DefaultRecords bounds the FPDUs of one worker that are placed and not yet delivered.
	DefaultRecords = 1 << 18
	// DefaultRecordLimit is the same bound for one connection. Each tiny FPDU behind a hole costs a record.
	DefaultRecordLimit = 1 << 15
	// maxIslands bounds the islands of one stream, which are searched and shifted for every segment out of order.
	maxIslands = 4096
	// maxSpan bounds how far behind the left edge a byte may lie, and so the size of the block table. No TCP window is
	// larger.
	maxSpan = 1 << 30
	// maxRepeats is how often an FPDU in order may be wrong. After that the peer is at fault, and not the wire.
	maxRepeats = 3
	// overdraft is how many FPDUs in order a connection may record beyond all limits, so that it always makes progress.
	// They are delivered as soon as the left edge has passed them, regardless of how many wait behind a hole.
	overdraft = 64
	// byteOverdraft is how many bytes behind the last complete FPDU in order a connection may hold beyond all limits:
	// one FPDU, whose first bytes must be kept so that TCP can ever complete it, and the rest of the segment that
	// completes it.
	byteOverdraft = 2 * MaxFPDU
	// maxDescriptors bounds the FPDUs that a sender has outstanding. A source of tiny ULPDUs then waits for
	// acknowledgements.
	maxDescriptors = 1 << 17
	// maxScan bounds the markers read to find one FPDU start. The largest FPDU holds 128.
	maxScan = 130
)
