package control

import (
	"fmt"
	"path/filepath"
)

// The sockets of a daemon, unless its configuration says otherwise. They lie in directories of their own,
// because programs in containers mount that of the first.
const (
	DefaultPath         = "/run/xwarp/control.sock"
	DefaultOperatorPath = "/run/xwarpd/admin.sock"
)

// TenantName returns the name of tenant n.
func TenantName(n int) string { return fmt.Sprintf("tenant-%d", n) }

// TenantPath returns the path of the control socket of a tenant: tenants.directory has a directory for each, which
// holds nothing else.
func TenantPath(directory, name string) string {
	return filepath.Join(directory, name, filepath.Base(DefaultPath))
}

// OperatorPath returns where the operator's socket of a daemon is whose control socket is at path.
func OperatorPath(path string) string {
	if path == DefaultPath {
		return DefaultOperatorPath
	}
	return path + ".admin"
}

// sysfsSuffix follows the path of a control socket.
const sysfsSuffix = ".sysfs"

// SysfsPath returns the directory of the files that stand for those below /sys/class/infiniband, for programs at the
// control socket at path. It has a directory for each style of devices.
func SysfsPath(path string) string { return path + sysfsSuffix }
