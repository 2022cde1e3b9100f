package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

var numaCheck = check{
	name: "numa", nic: true,
	why: "threads and frames should be on the device's own memory node: give its processors in cpus",
	look: func(e *env) finding {
		nodes, _ := filepath.Glob("/sys/devices/system/node/node[0-9]*")
		node, err := readNumber("/sys/class/net/" + e.name() + "/device/numa_node")
		switch {
		case len(nodes) < 2:
			return fine("the host has one memory node")
		case err != nil || node < 0:
			return fine("%s belongs to no memory node", e.name())
		}
		cpus, err := os.ReadFile(fmt.Sprintf("/sys/devices/system/node/node%d/cpulist", node))
		if err != nil {
			return warn("node %d: %v", node, err)
		}
		return fine("node %d: cpus should be of %s", node, strings.TrimSpace(string(cpus)))
	},
}
