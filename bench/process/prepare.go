package process

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// highest is the nice value of a measurement.
const highest = -20

// Prioritise puts every thread of this process, and the processes that it starts, before the other processes of the
// machine. undo reverts that for its session. Without the right to do so it changes nothing and reports that.
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

// autogroupFile is where the nice value of a whole session is: with scheduling by session (sched(7)) the nice values of
// processes only count within one.
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
