package device

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

// TestParent: the device of an interface is found, but not that of another interface with its name, which
// /sys/class/net may have.
func TestParent(t *testing.T) {
	root := t.TempDir()
	class, pci := filepath.Join(root, "net"), filepath.Join(root, "0000:01:00.0")
	nic := net.Interface{Name: "eth0", Index: 7, HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1}}
	dir := filepath.Join(class, nic.Name)
	for _, path := range []string{dir, pci} {
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"ifindex": "7\n", "address": "02:00:00:00:00:01\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := parent(class, nic); got != "" {
		t.Errorf("a virtual interface has the device %q", got)
	}
	if err := os.Symlink(pci, filepath.Join(dir, "device")); err != nil {
		t.Fatal(err)
	}
	if got := parent(class, nic); got != pci {
		t.Errorf("device %q, want %q", got, pci)
	}
	other := nic
	other.HardwareAddr = net.HardwareAddr{2, 0, 0, 0, 0, 2}
	if got := parent(class, other); got != "" {
		t.Errorf("another interface has the device %q", got)
	}
}
