package doctor

import (
	"fmt"
	"strconv"

	"xwarp/engine/plain"
	"xwarp/ring"
)

const (
	hugeDir  = "/sys/kernel/mm/hugepages/hugepages-2048kB/"
	hugeSize = 2 << 20
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
			total, _ := readNumber(hugeDir + "nr_hugepages")
			return warn("%d free, %d needed", free, e.hugePagesNeeded()).
				advise("echo %d > %snr_hugepages", total+e.hugePagesNeeded()-free, hugeDir)
		}
		return fine("%d free, %d needed", free, e.hugePagesNeeded())
	},
	save: func(*env) (settings, error) { return saveFile(hugeDir + "nr_hugepages") },
	fix: func(e *env) error {
		total, err := readNumber(hugeDir + "nr_hugepages")
		if err != nil {
			return err
		}
		free, err := readNumber(hugeDir + "free_hugepages")
		if err != nil {
			return err
		}
		return writeSetting(hugeDir+"nr_hugepages", strconv.Itoa(total+e.hugePagesNeeded()-free))
	},
	undo: restoreFiles(func(*env) []string { return []string{hugeDir + "nr_hugepages"} }),
}

// hugePagesNeeded returns the number of 2 MiB pages for the frames of all queues.
func (e *env) hugePagesNeeded() int {
	byteCount := (ring.DefaultRxFrames + ring.DefaultTxSlots) * ring.ChunkSize
	return len(e.opt.Queues) * (byteCount + hugeSize - 1) / hugeSize
}

// sizes formats a message with sizes in bytes.
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
