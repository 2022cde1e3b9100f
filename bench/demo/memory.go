package demo

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"xwarp/engine/plain"
)

// regions is how many regions of Config.Size a run needs: source and sink at A, target and inbox at B.
const regions = 4

// reserve is the number of bytes that a run leaves free for rings, the capture and the rest of the host.
const reserve = 256 << 20

// populate allocates every page of b, so that no transfer waits for page faults.
func populate(b []byte) error {
	if err := unix.Madvise(b, unix.MADV_POPULATE_WRITE); err != nil {
		return fmt.Errorf("memory for a region of %s: %w (a smaller --size needs less)",
			plain.Size(uint64(len(b))), err)
	}
	return nil
}

// fill fills b with pseudo-random data that seed determines.
func fill(b []byte, seed uint64) {
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	copy(key[8:], "xwarp demo")
	rand.NewChaCha8(key).Read(b)
}

// checkMemory refuses a Size for which the host lacks memory. Otherwise the kernel could kill the process during the
// run.
func (c *Config) checkMemory() error {
	have, ok := availableMemory("/proc/meminfo")
	if need := regions*c.Size + reserve; ok && need > have {
		return fmt.Errorf("%w: size %s needs %s of memory in all, and %s is available "+
			"(--size %dMiB fits)", ErrConfig, plain.Size(uint64(c.Size)), plain.Size(uint64(need)),
			plain.Size(uint64(have)), max(1, (have-reserve)/regions>>20))
	}
	return nil
}

// availableMemory returns MemAvailable in bytes; false when the file does not say.
func availableMemory(path string) (byteCount int64, ok bool) {
	b, _ := os.ReadFile(path)
	_, kib, _ := strings.Cut(string(b), "MemAvailable:")
	_, err := fmt.Sscan(kib, &byteCount)
	return byteCount << 10, err == nil
}
