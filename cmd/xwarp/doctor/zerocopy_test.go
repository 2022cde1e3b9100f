package doctor

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"xwarp/ring"
)

// TestZeroCopy checks results of trials combined with known features and bugs of the driver.
func TestZeroCopy(t *testing.T) {
	can, cannot := ring.Driver{ZeroCopy: true, Segments: 1}, ring.Driver{}
	failed := func(e unix.Errno) *trial {
		return &trial{where: "eth0", zero: fmt.Errorf("ring: bind: %w", e)}
	}
	skipped := &trial{where: "a temporary veth pair", skipped: "it has addresses",
		zero: errors.New("of the veth pair")}
	for _, tc := range []struct {
		name   string
		trial  *trial
		veth   bool
		driver ring.Driver
		told   error
		status Status
		what   string
		remedy string
	}{
		{"bound", &trial{where: "eth0"}, false, can, nil, OK, "bound to eth0", ""},
		{"bound, and faulty", &trial{where: "eth0", fault: errors.New("not safe")}, false, can, nil,
			Warn, "not safe", "auto"},
		{"faulty, not tried", skipped, false, ring.Driver{Name: "igb", ZeroCopy: true}, nil, Warn,
			"not safe", "auto"},
		{"claimed, and refused", failed(unix.EOPNOTSUPP), false, can, nil, Warn,
			"bind on eth0 with zero-copy: EOPNOTSUPP", "mtu 3506"},
		{"claimed, and the queue is taken", failed(unix.EBUSY), false, can, nil, Warn, "EBUSY",
			"--queues N"},
		{"claimed, and no memory", failed(unix.ENOMEM), false, can, nil, Warn, "ENOMEM",
			"ethtool -G"},
		{"claimed, and something else", failed(unix.EIO), false, can, nil, Warn, "EIO", "dmesg"},
		{"claimed, not tried", skipped, false, can, nil, OK, "interface: it has addresses", ""},
		{"not claimed", failed(unix.EOPNOTSUPP), false, cannot, nil, Warn, "does not support",
			"XDP_ACT_XSK_ZEROCOPY"},
		{"veth", failed(unix.EOPNOTSUPP), true, cannot, nil, OK, "veth always copies", ""},
		{"not told, and refused", failed(unix.EINVAL), false, cannot, ring.ErrNotReported, Warn,
			"EINVAL", "ethtool -l"},
		{"not told, not tried", skipped, false, cannot, ring.ErrNotReported, Warn, "unknown", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := zeroCopy(tc.trial, tc.veth, tc.driver, tc.told)
			if f.status != tc.status || !strings.Contains(f.what, tc.what) ||
				!strings.Contains(f.remedy, tc.remedy) || (f.remedy == "") != (tc.remedy == "") {
				t.Errorf("%+v", f)
			}
		})
	}
}
