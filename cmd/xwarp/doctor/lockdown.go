package doctor

import (
	"os"
	"strings"
)

var lockdownCheck = check{
	name: "lockdown",
	why: "kernel lockdown in confidentiality mode forbids the eBPF helpers that read kernel " +
		"memory, and some kernels all of eBPF",
	look: func(*env) finding {
		b, err := os.ReadFile("/sys/kernel/security/lockdown")
		if err != nil {
			return fine("the kernel has no lockdown, or it cannot be read")
		}
		return lockdown(string(b))
	},
}

// lockdown judges a text such as "none [integrity] confidentiality".
func lockdown(text string) finding {
	if strings.Contains(text, "[confidentiality]") {
		return warn("lockdown is confidentiality").advise("boot with lockdown=integrity")
	}
	_, mode, _ := strings.Cut(text, "[")
	mode, _, _ = strings.Cut(mode, "]")
	return fine("lockdown is %s", mode)
}
