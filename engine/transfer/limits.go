package transfer

import "time"

// Limits and sizes, with their reasons.
const (
	// MaxMessage is the length of a receive buffer. A longer message ends the connection.
	MaxMessage = 2048
	// MaxText is the maximum length of an Error's text in bytes.
	MaxText = 512
	// MaxPath is the maximum length of a path in bytes: it must fit into a Store message.
	MaxPath = 1900
	// MaxFile is the maximum length of a file in bytes. No sum of an offset and a length overflows.
	MaxFile = 1 << 46
	// DefaultMaxClients limits the connections of a server, because each has buffers and two goroutines.
	DefaultMaxClients = 64
	// receives is the maximum number of unprocessed messages of a peer.
	receives = 16
	// DefaultIdle ends a connection whose peer neither moves data nor sends a Beat, because it would block others.
	DefaultIdle = 30 * time.Second
	// sends is the maximum number of messages, RDMA Writes and Reads of one end that are not completed.
	sends = 32
	// beatsPerIdle is the number of Beats that each end sends per idle time of its own.
	beatsPerIdle = 6
	// minBeat is the minimum interval of Beats, however short the idle time.
	minBeat = time.Millisecond
	// minRate is the minimum number of bytes per second that a transfer must move while others wait for its resources,
	// averaged over the idle time. Otherwise a client that sends only Beats, or a byte now and then, could block others
	// forever.
	minRate = 64 << 10
	// wantedIdles is the number of idle times for which a name counts as requested after a client was refused it. A
	// stalled writer is detected in one of them.
	wantedIdles = 2
	// hashChunk is the number of bytes hashed before the next client's turn, so that a Sum does not block others.
	hashChunk = 256 << 10
	// DefaultMaxFiles is the default maximum number of files and directories in a directory: empty files use no bytes,
	// but fill a disk's inodes.
	DefaultMaxFiles = 1 << 20
	// maxListing limits the listing of a directory in bytes, and listStep is the number of names read at a time: a
	// directory with countless names would fill the memory.
	maxListing = 64 << 20
	listStep   = 1024
	// recountAfter is the minimum interval of counting a full directory again: clients that it refuses could keep a
	// disk busy otherwise.
	recountAfter = 10 * time.Second
	// partialAge is how long after its last write a partial file may be resumed. After that, OpenTree removes it.
	// Otherwise abandoned copies would fill the disk.
	partialAge = 7 * 24 * time.Hour
	// smallest is the length in bytes from which an interrupted file is kept to be resumed, however much of it arrived.
	smallest = PieceLen
	// maxRefused is the number of failed requests about files after which a connection ends, because each writes a log
	// line.
	maxRefused = 1000
	// PieceLen is the number of bytes of a file that one Move moves, when several connections share a large file.
	PieceLen = 8 << 20
	// BufferLen is the length in bytes of the server's buffer for one client of a directory, and of the longest pack.
	// Each connection may have one, so the clients of a directory may take DefaultMaxClients times as much.
	BufferLen = 4 << 20
	// stepLen is the maximum number of bytes of a file per request, steps the number of requests in flight. Shorter
	// ones cost more wake-ups, longer ones more memory.
	stepLen = BufferLen / steps
	steps   = 4
	// MaxPacked is the maximum number of files in a pack, because each takes a descriptor of the server until the pack
	// is complete.
	MaxPacked = 512
	// PackedLen is the maximum length in bytes of a file sent in a pack. Longer files are moved separately, so that
	// several connections can share them, and an interrupted copy can be resumed.
	PackedLen = 64 << 10
	// minHole is the minimum length in bytes of a hole to keep. Shorter ones cost more requests than they save.
	minHole = 64 << 10
	// probeWait is how long a client waits for a file held by another client, while the server checks whether that
	// client is alive.
	probeWait = 500 * time.Millisecond
	// maxSum is the maximum number of bytes of one Sum request, so that a request of 56 bytes for a large file does not
	// block the connection.
	maxSum = 64 << 20
	// closeWait is how long a graceful close may take before the connection is reset.
	closeWait = 2 * time.Second
)
