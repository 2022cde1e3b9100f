package doctor

import (
	"fmt"
	"strconv"

	"xwarp/ring"
)

const (
	hugeDir  = "/sys/kernel/mm/hugepages/hugepages-2048kB/"
	hugeSize = 2 << 20
)

var hugePageCheck = check{
	name: "hugepages",
	why: "with huge_pages = true the frames lie in 2 MiB pages; where there are none, ordinary " +
		"pages are used",
	look: func(e *env) finding {
		free, err := readNumber(hugeDir + "free_hugepages")
		switch {
		case !e.opt.HugePages:
			return fine("%d free, not asked for", free)
		case err != nil:
			return warn("the kernel has no 2 MiB pages: %v", err)
		case free < e.hugePages():
			total, _ := readNumber(hugeDir + "nr_hugepages")
			return warn("%d free, %d are needed", free, e.hugePages()).
				advise("echo %d > %snr_hugepages", total+e.hugePages()-free, hugeDir)
		}
		return fine("%d free, %d are needed", free, e.hugePages())
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
		return writeSetting(hugeDir+"nr_hugepages", strconv.Itoa(total+e.hugePages()-free))
	},
	undo: restoreFiles(func(*env) []string { return []string{hugeDir + "nr_hugepages"} }),
}

// hugePages is how many 2 MiB pages the frames of all queues take.
func (e *env) hugePages() int {
	byteCount := (ring.DefaultRxFrames + ring.DefaultTxSlots) * ring.ChunkSize
	return len(e.opt.Queues) * (byteCount + hugeSize - 1) / hugeSize
}

// sizes formats bytes in a message.
func sizes(format string, byteCount ...uint64) string {
	var args []any
	for _, n := range byteCount {
		switch {
		case n == ^uint64(0):
			args = append(args, "unlimited bytes")
		case n >= 1<<20:
			args = append(args, fmt.Sprintf("%d MiB", n>>20))
		default:
			args = append(args, fmt.Sprintf("%d KiB", n>>10))
		}
	}
	return fmt.Sprintf(format, args...)
}
