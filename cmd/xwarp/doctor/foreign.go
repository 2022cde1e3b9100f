package doctor

import (
	"errors"

	"xwarp/bpf"
)

var foreignCheck = check{
	name: "foreign-program", nic: true,
	why: "an interface carries one XDP program, and nobody's is replaced",
	look: func(e *env) finding {
		if x := e.nic.Attrs().Xdp; x == nil || !x.Attached {
			return fine("%s carries no XDP program", e.name())
		}
		// The attempt names the program; nothing is replaced.
		err := tryAttach(e.nic.Attrs().Index, bpf.ModeAuto)
		var f *bpf.ForeignProgramError
		switch {
		case err == nil:
			return fine("%s carried an XDP program, which is gone now", e.name())
		case errors.As(err, &f) && f.Name == steeringProgram:
			return fine("xwarp itself is attached to %s (program %d, %s)", e.name(), f.ID, f.Mode)
		}
		return fail("%v", err).advise("bpftool net show dev %s", e.name())
	},
}

// steeringProgram is the name of our own program in the kernel.
const steeringProgram = "xwarp_steer"
