package control

import (
	"fmt"
	"path/filepath"
)

// Default paths of a daemon's sockets. They are in separate directories, because containers mount the directory of the
// control socket, and must not get the operator socket.
const (
	DefaultPath         = "/run/xwarp/control.sock"
	DefaultOperatorPath = "/run/xwarpd/admin.sock"
)

// TenantName returns the name of tenant n.
func TenantName(n int) string { return fmt.Sprintf("tenant-%d", n) }

// TenantPath returns the path of a tenant's control socket: tenants.directory has a directory for each tenant, which
// contains only this socket.
func TenantPath(directory, name string) string {
	return filepath.Join(directory, name, filepath.Base(DefaultPath))
}

// OperatorPath returns the path of the operator socket of a daemon whose control socket is at path.
func OperatorPath(path string) string {
	if path == DefaultPath {
		return DefaultOperatorPath
	}
	return path + ".admin"
}

// sysfsSuffix is appended to the path of a control socket.
const sysfsSuffix = ".sysfs"

// SysfsPath returns the directory of the files that replace those below /sys/class/infiniband, for programs of the
// control socket at path. It has a directory for each style of devices.
func SysfsPath(path string) string { return path + sysfsSuffix }
