package layers

import (
	"hash/crc32"
	"time"

	"xwarp/tcp/wire"
)

// bare does only the work on the receiving host's frames that every receiver must do: Internet checksum, CRC32C and a
// copy to memory. It has chunks and a region of its own, as many and as large as the host's, and walks them in the same
// order, so that its bytes are in the same caches: frames just written, and a region that has left the caches since
// the last round.
type bare struct {
	chunks []byte
	next   int // where the next frame goes in chunks
	batch  [][]byte
	region []byte
	at     int
	spent  time.Duration
	clock  time.Duration // as a host's
}

const (
	chunk   = 4096 // of the ring
	headers = 14 + 20 + 32
)

func newBare() *bare {
	return &bare{chunks: make([]byte, rxFrames*chunk), region: make([]byte, region)}
}

// keepFrame keeps a frame with payload.
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

// touchFrames checks and copies the frames that were taken.
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
