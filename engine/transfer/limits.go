package transfer

import "time"

// Limits, each with what it stops.
const (
	// MaxMessage is the length of a receive buffer: a longer message ends the connection.
	MaxMessage = 2048
	// MaxText is the most bytes of an Error's text that are sent or taken.
	MaxText = 512
	// MaxPath is the longest path in bytes: it has to fit a message, behind what else a Store says.
	MaxPath = 1900
	// MaxRegion is the largest region in bytes: what a mapping can be addressed with on every 64-bit machine.
	MaxRegion = 1 << 46
	// DefaultMaxClients bounds the connections of a server: each has buffers and two goroutines.
	DefaultMaxClients = 64
	// receives is how many messages a peer may have sent that are not looked at yet.
	receives = 16
	// DefaultIdle ends a connection whose peer neither moves data nor sends a Beat: it would keep the others waiting.
	DefaultIdle = 30 * time.Second
	// beatsPerIdle is how many Beats are sent in the time that the peer waits.
	beatsPerIdle = 6
	// minBeat is the shortest time between two Beats, however short the idle time: else they would be all that is done.
	minBeat = time.Millisecond
	// minRate is the bytes that a transfer must move in each second while others wait for what it holds,
	// taken over the idle time: a client that only sends Beats, or a byte now and then, would keep them
	// waiting for ever.
	minRate = 64 << 10
	// wantedIdles is for how many idle times a name counts as wanted after a client was refused it: in one of them
	// a writer that stands still is found out.
	wantedIdles = 2
	// roomFactor times the region is the memory for what is not its content: bytes of puts that are not
	// whole yet, and contents that were replaced while gets read them. Without it, puts of many clients take
	// all memory of the host.
	roomFactor = 2
	// firstGrant is how many bytes of disk a put of a length that nobody knows has at first: it may be short, and
	// the region as large as the disk.
	firstGrant = 64 << 20
	// hashChunk is how much of a SHA-256 is computed before the next client's turn: a request of
	// 16 bytes for all of a large region holds up nobody for longer.
	hashChunk = 256 << 10
	// maxDigests bounds what is remembered of one content: gets of ever new lengths would fill the memory.
	maxDigests = 16
	// DefaultMaxFiles is how many files and directories a directory may have when the configuration does not say
	// so: empty ones take no bytes, and fill a disk's inodes all the same.
	DefaultMaxFiles = 1 << 20
	// maxListing bounds the listing of one directory in bytes, and listStep how many names are read at a time: a
	// directory with names without end would fill the memory.
	maxListing = 64 << 20
	listStep   = 1024
	// partialAge is the time for which a partial file may be resumed, before a start removes it: what
	// clients begin and never end would fill the disk.
	partialAge = 7 * 24 * time.Hour
	// smallest is the bytes from which a file that was cut off is kept: of less there is no whole piece.
	smallest = PieceLen
	// maxRefused is the number of failed requests about files after which a connection ends: each writes a line to the
	// log.
	maxRefused = 1000
	// PieceLen is how many bytes of a file one Move moves: one connection's, of those that copy a large file together.
	PieceLen = 8 << 20
	// BufferLen is the length in bytes of the server's buffer for one client of a directory, and of the longest pack.
	// Each connection may have one: the clients of a directory may take DefaultMaxClients times as much.
	BufferLen = 4 << 20
	// stepLen is how many bytes of a file one request moves at most, and steps how many requests are under way. Shorter
	// ones cost more wake-ups, longer ones more memory.
	stepLen = BufferLen / steps
	steps   = 4
	// MaxPacked is how many files a pack has at most: each takes a descriptor of the server until all have come.
	MaxPacked = 512
	// PackedLen is the length in bytes up to which a file is sent in a pack. Longer files are moved on their own, so
	// that several connections share them, and a copy that is cut off resumes.
	PackedLen = 64 << 10
	// minHole is the length in bytes from which a hole is kept. Shorter ones cost more requests than they save.
	minHole = 64 << 10
	// probeWait is how long a client waits that wants a file which another client holds, while the server finds out
	// whether that client is still there.
	probeWait = 500 * time.Millisecond
	// maxSum is how many bytes one Sum may ask about: a request of 56 bytes for all of a large file holds up
	// the connection for longer.
	maxSum = 64 << 20
	// closeWait is how long a graceful close may take before the connection is cut.
	closeWait = 2 * time.Second
	// chunk is the length of one RDMA Write or Read of a client, and depth how many are under way: together
	// they are the client's memory.
	chunk = 1 << 20
	depth = 16
)
