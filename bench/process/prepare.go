package process

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// highest is the nice value of a measurement: the highest priority.
const highest = -20

// Prioritise gives every thread of this process, and the processes that it starts, the highest priority on the machine.
// Calling undo restores the priority of its session, but not of its threads. Without permission Prioritise returns an
// error and changes nothing.
func Prioritise() (undo func(), err error) {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil, err
	}
	for _, t := range tasks {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		if err := unix.Setpriority(unix.PRIO_PROCESS, id, highest); err != nil &&
			err != unix.ESRCH {
			return nil, fmt.Errorf("nice %d: %w", highest, err)
		}
	}
	before := autogroup()
	setAutogroup(highest)
	return func() { setAutogroup(before) }, nil
}

// autogroupFile holds the nice value of this process's session. If the kernel schedules by session (sched(7)), the nice
// values of processes only count within their session.
const autogroupFile = "/proc/self/autogroup"

func autogroup() (nice int) {
	b, _ := os.ReadFile(autogroupFile)
	if _, after, ok := strings.Cut(string(b), "nice "); ok {
		nice, _ = strconv.Atoi(strings.TrimSpace(after))
	}
	return nice
}

// setAutogroup is best effort: not every kernel schedules by session.
func setAutogroup(nice int) {
	os.WriteFile(autogroupFile, strconv.AppendInt(nil, int64(nice), 10), 0)
}
