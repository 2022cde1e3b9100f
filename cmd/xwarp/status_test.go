package main

import (
	"net/netip"
	"strings"
	"testing"

	"xwarp/engine/daemon/control"
	"xwarp/engine/verbs"
)

// status prints a line with the transfers of an export, but not for an export of memory.
func TestStatusOfTransfers(t *testing.T) {
	s := control.Status{Exports: []control.ExportState{
		{Name: "scratch", Serve: "memory"},
		{Name: "files", Serve: "directory", Size: 1 << 30, Used: 3 << 20},
		{Name: "images", Serve: "directory", Puts: 1, PutBytes: 4096, Gets: 3, GetBytes: 12288,
			Failed: 2},
	}}
	var b strings.Builder
	if err := writeStatus(&b, &s); err != nil {
		t.Fatal(err)
	}
	const line = "  1 file stored: 4.00 KiB, 3 files fetched: 12.0 KiB, 2 failed\n"
	_, after, _ := strings.Cut(b.String(), "export images")
	if !strings.Contains(b.String(), " 3.00 MiB used of 1.00 GiB,") {
		t.Errorf("a directory lacks its limit:\n%s", &b)
	}
	if strings.Count(b.String(), " fetched: ") != 2 || !strings.Contains(after, line) {
		t.Errorf("want %q in\n%s", line, &b)
	}
}

// TestStatusOfSharedAddress: status names both devices with one address. A device on kernel sockets serves all
// interfaces, so it does not count.
func TestStatusOfSharedAddress(t *testing.T) {
	device := func(name, mode string, addrs ...string) (d control.DeviceState) {
		d.Name, d.DeviceMode = name, verbs.DeviceMode{Interface: name, XDPMode: mode}
		for _, a := range addrs {
			d.Addresses = append(d.Addresses, netip.MustParseAddr(a))
		}
		return d
	}
	s := control.Status{Devices: []control.DeviceState{
		device("lo", "", "192.0.2.1", "192.0.2.2"),
		device("eth0.5", "native", "192.0.2.1", "192.0.2.2"),
		device("eth0.6", "native", "192.0.2.3", "192.0.2.2"),
	}}
	var b strings.Builder
	if err := writeStatus(&b, &s); err != nil {
		t.Fatal(err)
	}
	const line = "\n  address 192.0.2.2 is also on eth0.5: connections may get no answer; " +
		"see xwarp doctor --interface eth0.6\n"
	if strings.Count(b.String(), "is also on") != 1 || !strings.Contains(b.String(), line) {
		t.Errorf("want %q in\n%s", line, &b)
	}
}
