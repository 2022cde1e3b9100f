// Package version says what a program was built from.
package version

import "runtime/debug"

// stamped and stampedRevision are set by the linker where packages are built: -ldflags "-X
// xwarp/engine/version.stamped=1.2".
var stamped, stampedRevision string

// Build is what is known of a build.
type Build struct {
	Version  string `json:"version" doc:"version of the package or module; \"(devel)\" if built from a work tree"`
	Revision string `json:"revision,omitempty" doc:"revision of the repository"`
	Modified bool   `json:"modified" doc:"the work tree had uncommitted changes"`
}

// Get returns the build's version. What was stamped comes before what the toolchain knows.
func Get() Build {
	v := Build{Version: "(unknown)"}
	if b, ok := debug.ReadBuildInfo(); ok {
		v.Version = b.Main.Version
		for _, s := range b.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Revision = s.Value
			case "vcs.modified":
				v.Modified = s.Value == "true"
			}
		}
	}
	if stamped != "" {
		v.Version, v.Revision, v.Modified = stamped, stampedRevision, false
	}
	return v
}
