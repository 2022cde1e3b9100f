package control

// The sockets of a daemon, unless its configuration says otherwise. They lie in directories of their own,
// because programs in containers mount that of the first.
const (
	DefaultPath         = "/run/xwarp/control.sock"
	DefaultOperatorPath = "/run/xwarpd/admin.sock"
)

// OperatorPath returns where the operator's socket of a daemon is whose control socket is at path.
func OperatorPath(path string) string {
	if path == DefaultPath {
		return DefaultOperatorPath
	}
	return path + ".admin"
}
