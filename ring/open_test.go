package ring

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSocketHint: each errno of socket(2) has the hint for its cause, and no other.
func TestSocketHint(t *testing.T) {
	causes := map[unix.Errno]string{
		unix.EPERM: "CAP_NET_RAW", unix.EACCES: "CAP_NET_RAW",
		unix.EAFNOSUPPORT: "CONFIG_XDP_SOCKETS", unix.EPROTONOSUPPORT: "CONFIG_XDP_SOCKETS",
		unix.EMFILE: "ulimit -n", unix.ENFILE: "fs.file-max",
		unix.ENOMEM: "memory", unix.ENOBUFS: "memory", unix.EINVAL: "",
	}
	for err := range causes {
		hint := SocketHint(err, "CONFIG_XDP_SOCKETS")
		for _, cause := range causes {
			if want := cause != "" && cause == causes[err]; cause != "" &&
				strings.Contains(hint, cause) != want {
				t.Errorf("%v: %q", err, hint)
			}
		}
	}
}

// TestTooManyFiles: without a free descriptor the error names ulimit -n, not a capability.
func TestTooManyFiles(t *testing.T) {
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	none := unix.Rlimit{Cur: 0, Max: was.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	_, err := NewSocket()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, unix.EMFILE) || !strings.Contains(err.Error(), "ulimit -n") ||
		strings.Contains(err.Error(), "CAP_NET_RAW") {
		t.Errorf("%v", err)
	}
}
