package bpf

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

func TestNewEnough(t *testing.T) {
	for release, want := range map[string]bool{
		"6.6.0": true, "6.6-rc1": true, "6.12.107+deb13-amd64": true, "7.0": true, "10.1.2": true,
		"6.5.13": false, "6.1.0-50-amd64": false, "5.18": false, "": false, "six": false,
	} {
		if NewEnough(release) != want {
			t.Errorf("Linux %s: %t", release, !want)
		}
	}
	if !NewEnough(Release()) {
		t.Errorf("this is Linux %s", Release())
	}
}

// TestLoadHint: the verifier of Linux 6.1 refuses the program with EACCES. The hint must then name the kernel that the
// program needs. On newer kernels EACCES, and on each kernel EPERM, leads to the hint about capabilities.
func TestLoadHint(t *testing.T) {
	refused := fmt.Errorf("load program: %w", &ebpf.VerifierError{Cause: unix.EACCES})
	for _, c := range []struct {
		err           error
		release, says string
	}{
		{refused, "6.1.0-50-amd64", "install Linux 6.6 or newer"},
		{refused, "6.12.1", "CAP_PERFMON"},
		{unix.EPERM, "6.1.0", "CAP_PERFMON"},
		{unix.ENOMEM, "6.1.0", "not enough memory"},
	} {
		if got := loadHint(c.err, c.release).Error(); !strings.Contains(got, c.says) {
			t.Errorf("on %s: %s", c.release, got)
		}
	}
}
