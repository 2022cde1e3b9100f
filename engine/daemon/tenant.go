package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
)

// startTenants opens the control sockets of tenants. A program that can reach a tenant's socket acts as that tenant. It
// can reach the socket through tenants.directory, which other users may not enter, or if the directory of the socket is
// mounted for it.
func (d *Daemon) startTenants(c *config.Tenants) error {
	if c.Count == 0 {
		return nil
	}
	if err := ownDirectory(c.Directory, 0o700); err != nil {
		return fmt.Errorf("tenants.directory: %w", err)
	}
	d.tenantDirectory = c.Directory
	for n := range c.Count {
		name := control.TenantName(n)
		path := control.TenantPath(c.Directory, name)
		if err := ownDirectory(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("directory of %s: %w", name, err)
		}
		ln, err := listenControl(path, socketAccess{mode: 0o666})
		if err != nil {
			return err
		}
		d.tenants = append(d.tenants, ln)
		go d.acceptPrograms(ln, entrance{tenant: name})
	}
	d.log.Info("control sockets for tenants are open", "tenants", c.Count, "directory", c.Directory)
	return nil
}

// ownDirectory creates a directory with a mode, or changes the mode of an existing one, which the daemon must own. The
// directory stays when the daemon exits, because containers mount it.
func ownDirectory(path string, mode fs.FileMode) error {
	if err := os.MkdirAll(path, mode); err != nil {
		return err
	}
	f, err := os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return fmt.Errorf("%s is not a directory", path)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if uid := st.Sys().(*syscall.Stat_t).Uid; uid != uint32(os.Geteuid()) {
		return fmt.Errorf("%s belongs to user %d, who could create sockets there: remove it, or use "+
			"another", path, uid)
	}
	return f.Chmod(mode)
}
