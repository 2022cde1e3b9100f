package endpoint

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// cpuModel returns the name of the processor in /proc/cpuinfo with its family and model, because vendors give several
// models one name. It is empty when the file has none.
func cpuModel() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	return modelOf(string(b))
}

func modelOf(cpuinfo string) string {
	field := map[string]string{}
	first, _, _ := strings.Cut(cpuinfo, "\n\n")
	for line := range strings.Lines(first) {
		name, value, _ := strings.Cut(line, ":")
		field[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	name := field["model name"]
	if field["cpu family"] != "" {
		name += fmt.Sprintf(" (family %s, model %s)", field["cpu family"], field["model"])
	}
	return name
}

// processorTime returns the processor time of this process in seconds.
func processorTime() float64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) * 1e-9
}

// OnProcessor runs f on its own thread, which is pinned to processor cpu unless cpu is negative, and returns f's error.
func OnProcessor(cpu int, f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its mask
		if cpu >= 0 {
			var set unix.CPUSet
			set.Set(cpu)
			unix.SchedSetaffinity(0, &set)
		}
		result <- f()
	}()
	return <-result
}
