package main

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"xwarp/bench/topo"
)

// A report has the measurements with a peer over both transports, but no MAC or IPv4 address of the host or the peer.
func TestDoctorReport(t *testing.T) {
	n := hosts(t, topo.NoOffloads, topo.NoOffloads)
	dir := t.TempDir()
	_, at := serving(t, n.B, dir, "--interface", "eth0", "--listen", n.B.Addr4.Addr().String())
	file := filepath.Join(t.TempDir(), "eth0.json")
	c := onHost(t, n.A, "doctor", "--interface", "eth0", "--report", file, "--peer", at,
		"--peer-time", "50ms")
	if err := c.run(t, n.A); err != nil {
		t.Fatalf("%v: %s%s", err, &c.stdout, &c.stderr)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var v reportDocument
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Measured) != 4 || v.NIC.Driver != "veth" || v.Kernel == "" {
		t.Errorf("the report is %s", text)
	}
	for _, m := range v.Measured {
		if m.Error != "" || m.Bytes <= 0 || m.Seconds <= 0 || m.Rate <= 0 {
			t.Errorf("measured %+v", m)
		}
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
		t.Errorf("the measurement left %v, %v", names, err)
	}
	tried := false
	for _, l := range v.Lines {
		tried = tried || l.Check == "transmit" && strings.Contains(l.What, "Gbit/s")
	}
	if !tried {
		t.Error("no way of transmit was measured")
	}
	var mac net.HardwareAddr
	if err := n.A.Do(func() error {
		nic, err := net.InterfaceByName("eth0")
		mac = nic.HardwareAddr
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{mac.String(), n.A.Addr4.Addr().String(),
		n.B.Addr4.Addr().String()} {
		if strings.Contains(string(text), name) {
			t.Errorf("the report names %s: %s", name, text)
		}
	}
}

// A peer that refuses connections is noted in the report, which has all other data.
func TestDoctorReportWithoutPeer(t *testing.T) {
	n := hosts(t, topo.NoOffloads, topo.NoOffloads)
	file := filepath.Join(t.TempDir(), "eth0.json")
	c := onHost(t, n.A, "doctor", "--interface", "eth0", "--report", file, "--peer",
		n.B.Addr4.Addr().String(), "--peer-time", "50ms")
	if err := c.run(t, n.A); err != nil {
		t.Fatalf("%v: %s%s", err, &c.stdout, &c.stderr)
	}
	var v reportDocument
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range v.Measured {
		if !strings.Contains(m.Error, "PEER") && !strings.Contains(m.Error, "refused") {
			t.Errorf("measured %+v", m)
		}
	}
	if len(v.Measured) != 4 || len(v.Lines) == 0 {
		t.Errorf("%s", text)
	}
}
