package doctor

import (
	"errors"
	"fmt"
	"strconv"

	"xwarp/engine/plain"
	"xwarp/ring"
)

const (
	hugeDir   = "/sys/kernel/mm/hugepages/hugepages-2048kB/"
	hugeTotal = hugeDir + "nr_hugepages"
	hugeSize  = 2 << 20
)

var hugePageCheck = check{
	name: "hugepages",
	why:  "with huge_pages = true, frames use 2 MiB pages; if there are too few, ordinary pages",
	look: func(e *env) finding {
		free, err := readNumber(hugeDir + "free_hugepages")
		switch {
		case !e.opt.HugePages:
			return fine("%d free, not requested", free)
		case err != nil:
			return warn("the kernel does not support 2 MiB pages: %v", err)
		case free < e.hugePagesNeeded():
			total, _ := readNumber(hugeTotal)
			return warn("%d free, %d needed", free, e.hugePagesNeeded()).
				advise("echo %d > %s", total+e.hugePagesNeeded()-free, hugeTotal)
		}
		return fine("%d free, %d needed", free, e.hugePagesNeeded())
	},
	want: func(e *env) (settings, error) {
		total, err := readNumber(hugeTotal)
		free, e2 := readNumber(hugeDir + "free_hugepages")
		return settings{hugeTotal: strconv.Itoa(total + e.hugePagesNeeded() - free)},
			errors.Join(err, e2)
	},
	get: readSetting,
	put: putIn(hugeTotal),
}

// hugePagesNeeded returns the number of 2 MiB pages for the frames of all queues.
func (e *env) hugePagesNeeded() int {
	byteCount := (ring.DefaultRxFrames + ring.DefaultTxSlots) * ring.ChunkSize
	return len(e.opt.Queues) * (byteCount + hugeSize - 1) / hugeSize
}

// sizes formats a message. The arguments of its %s verbs are sizes in bytes, which it prints with units.
func sizes(format string, byteCount ...uint64) string {
	var args []any
	for _, n := range byteCount {
		text := plain.Size(n)
		if n == ^uint64(0) {
			text = "unlimited"
		}
		args = append(args, text)
	}
	return fmt.Sprintf(format, args...)
}
