package layers

import (
	"hash/crc32"
	"time"

	"xwarp/tcp/wire"
)

// bare does only the work on the receiving host's frames that every receiver must do: Internet checksum, CRC32C and a
// copy to memory. Its chunks and region are as large as the host's, and it walks them in the same order. So the caches
// treat both alike: frames were just written, and the region has left the caches since the last round.
type bare struct {
	chunks []byte
	next   int      // offset in chunks of the next frame
	batch  [][]byte // payload of the frames that touchFrames will process
	region []byte
	at     int           // offset in region of the next copy
	spent  time.Duration // processor time of touchFrames
	clock  time.Duration // part of spent that each reading of the clock takes
}

const (
	chunk   = 4096         // bytes of a chunk of an AF_XDP ring
	headers = 14 + 20 + 32 // bytes of Ethernet, IPv4 and TCP headers before the payload
)

func newBare() *bare {
	return &bare{chunks: make([]byte, rxFrames*chunk), region: make([]byte, region)}
}

// keepFrame copies a frame with payload into chunks and adds it to batch.
func (w *bare) keepFrame(f []byte) {
	if w.next+len(f) > len(w.chunks) {
		w.next = 0
	}
	at := w.chunks[w.next : w.next+len(f)]
	copy(at, f)
	w.batch = append(w.batch, at[headers:])
	w.next += (len(f) + chunk - 1) &^ (chunk - 1)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// touchFrames computes both checksums of the payloads in batch, copies them to region, and empties batch.
func (w *bare) touchFrames() {
	start := cpuTime()
	for _, b := range w.batch {
		sink += wire.Sum(b, 0) + uint64(crc32.Checksum(b, castagnoli))
		if w.at+len(b) > len(w.region) {
			w.at = 0
		}
		w.at += copy(w.region[w.at:], b)
	}
	w.spent += cpuTime() - start - w.clock
	w.batch = w.batch[:0]
}
