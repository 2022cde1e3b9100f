package doctor

import (
	"cmp"
	"errors"
	"os"
	"strings"

	"xwarp/bpf"
)

var kernelCheck = check{
	name: "kernel",
	why: "AF_XDP supports multi-buffer frames since Linux " + bpf.Oldest + "; the engine always " +
		"uses them",
	look: func(*env) finding {
		release := bpf.Release()
		if !bpf.NewEnough(release) {
			return finding{Fail, "Linux " + release + " is older than " + bpf.Oldest,
				"install a newer kernel, or use transport = \"kernel\""}
		}
		return fine("Linux %s", release)
	},
}

var lockdownCheck = check{
	name: "lockdown",
	why: "kernel lockdown in confidentiality mode disables eBPF helpers that read kernel memory; " +
		"some kernels disable all of eBPF",
	look: func(*env) finding {
		b, err := os.ReadFile("/sys/kernel/security/lockdown")
		if err != nil {
			return fine("no lockdown, or not readable")
		}
		return lockdown(string(b))
	},
}

// lockdown checks a text such as "none [integrity] confidentiality".
func lockdown(text string) finding {
	if strings.Contains(text, "[confidentiality]") {
		return warn("lockdown is confidentiality").advise("boot with lockdown=integrity")
	}
	_, mode, _ := strings.Cut(text, "[")
	mode, _, _ = strings.Cut(mode, "]")
	return fine("lockdown is %s", mode)
}

var foreignCheck = check{
	name: "foreign-program", nic: true,
	why: "xwarp joins libxdp's dispatcher, and does not replace another XDP program",
	look: func(e *env) finding {
		if !e.hasProgram() {
			return fine("%s has no XDP program", e.name())
		}
		switch d, err := bpf.Dispatched(e.nic); {
		case err != nil:
			return fail("%v", err).advise("xdp-loader status %s", e.name())
		case d == nil:
		case d.Left:
			return warn("a killed xwarp left its program in libxdp's dispatcher of %s: it passes all "+
				"frames, and the next start of xwarp on %s removes it", e.name(), e.name()).advise(
				"systemctl restart xwarpd")
		case d.Ours:
			return fine("xwarp's program is in libxdp's dispatcher of %s: %s", e.name(), d.Programs)
		default:
			return fine("xwarp will join libxdp's dispatcher of %s: %s", e.name(), d.Programs)
		}
		f, err := e.tryAttachProgram()
		switch {
		case err == nil:
			return fine("the XDP program of %s was detached during the check", e.name())
		case f == nil || f.ID == 0:
			return fail("%v", err).advise("bpftool net show dev %s", e.name())
		case f.Name == steeringProgram:
			return fine("xwarp is attached to %s (program %d, %s)", e.name(), f.ID, f.Mode)
		}
		mode := map[bpf.Mode]string{bpf.ModeNative: "xdpdrv", bpf.ModeGeneric: "xdpgeneric"}[f.Mode]
		return fail("%v", err).advise("stop its owner (bpftool prog show id %d: pids); without an "+
			"owner: ip link set dev %s %s off", f.ID, e.name(), cmp.Or(mode, "xdp"))
	},
}

func (e *env) hasProgram() bool {
	x := e.nic.Attrs().Xdp
	return x != nil && x.Attached
}

// tryAttachProgram tries to attach xwarp's program. It returns the error, and the XDP program that prevents attaching,
// nil if none does. The attempt replaces no program.
func (e *env) tryAttachProgram() (f *bpf.ForeignProgramError, err error) {
	err = tryAttach(e.nic.Attrs().Index, bpf.ModeAuto)
	errors.As(err, &f)
	return f, err
}

// isServed reports whether xwarpd or another xwarp process serves the interface.
func (e *env) isServed() bool {
	if !e.hasProgram() {
		return false
	}
	if d, err := bpf.Dispatched(e.nic); d != nil || err != nil {
		return d != nil && d.Ours && !d.Left
	}
	f, _ := e.tryAttachProgram()
	return f != nil && f.Name == steeringProgram
}

// steeringProgram is the name of xwarp's program in the kernel.
const steeringProgram = "xwarp_steer"
