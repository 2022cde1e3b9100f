package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"xwarp/scripts/lab/output"
	"xwarp/scripts/lab/trial"
	"xwarp/scripts/lab/vm"
)

// trials are the rows of the table, in the order in which they run.
var trials = []trial.Trial[*machine]{
	{What: "doctor --fix", Run: doctor},
	{What: "tests of the eBPF program", Run: tests("bpf.test")},
	{What: "tests of the AF_XDP rings", Run: tests("ring.test")},
	{What: "demo: loss, reordering, duplicates, corruption",
		Run: demo("--loss 0.02 --reorder 0.05 --duplicate 0.01 --corrupt 0.001")},
	{What: "demo: MTU 9000, IPv6", Run: demo("--mtu 9000 --ipv6")},
	{What: "ways of transmit on veth (doctor --measure)", Run: transmit},
	{What: "cp there / back between two xwarpd on veth", Run: daemons},
	{What: "cp there / back on virtio-net, the other end Linux " + release(), Run: virtio},
	{What: "cp there / back over the kernel's sockets", Run: sockets},
}

// release returns the kernel version of this computer, which is the other end of the trial on virtio-net.
func release() string {
	var u syscall.Utsname
	syscall.Uname(&u)
	var b strings.Builder
	for _, c := range u.Release {
		if (c < '0' || c > '9') && c != '.' { // the suffix of a vendor begins here
			break
		}
		b.WriteByte(byte(c))
	}
	return b.String()
}

// doctor runs doctor --fix on both hosts.
func doctor(m *machine) (string, error) { return m.Fix(trial.NIC) }

// tooOld matches a message that names the kernel that xwarp needs.
var tooOld = regexp.MustCompile(`.*\b` + regexp.QuoteMeta(floor) + `\b.*`)

var testLine = regexp.MustCompile(`(?m)^--- (PASS|SKIP|FAIL): (\S+)`)

// tests returns a trial that runs a package's compiled tests in the machine. Its result is the number of passed tests
// and the names of skipped ones.
func tests(binary string) func(*machine) (string, error) {
	return func(m *machine) (string, error) {
		out, err := m.Script("cd /tmp && " + vm.SharePath + "/" + binary +
			" -test.v -test.timeout 9m")
		passed, skipped, failed := 0, []string(nil), []string(nil)
		for _, l := range testLine.FindAllStringSubmatch(out, -1) {
			switch l[1] {
			case "PASS":
				passed++
			case "SKIP":
				skipped = append(skipped, l[2])
			default:
				failed = append(failed, l[2])
			}
		}
		if len(failed) > 0 {
			err = errors.New(strings.Join(failed, ", "))
		}
		if why := tooOld.FindString(out); why != "" && err != nil {
			err = fmt.Errorf("%d failed: %s", len(failed), strings.TrimSpace(why))
		}
		text := fmt.Sprintf("%d", passed)
		if len(skipped) > 0 {
			text += ", skipped " + strings.Join(skipped, ", ")
		}
		return text, err
	}
}

func demo(flags string) func(*machine) (string, error) {
	return func(m *machine) (string, error) {
		out, err := m.Script(fmt.Sprintf("%s demo --size %dMiB --timeout 9m --json %s", xwarp,
			payloadMiB, flags))
		if err != nil {
			return "", err
		}
		type end struct {
			XDPMode string `json:"xdp_mode"`
			Copy    string
		}
		var v struct {
			OK    bool
			B     end
			Verbs []struct {
				MiBPerSecond float64 `json:"mib_per_s"`
			}
			AToB struct {
				Relay struct{ Lost uint64 }
			} `json:"a_to_b"`
		}
		if err := output.JSON(out, &v); err != nil {
			return "", err
		}
		if !v.OK || len(v.Verbs) == 0 {
			return "", errors.New("the demo exited with 0 but reported an error")
		}
		text := v.B.XDPMode + ", " + v.B.Copy
		for i, verb := range v.Verbs {
			text += fmt.Sprintf("%s%.1f", []string{", ", " / "}[min(i, 1)], verb.MiBPerSecond)
		}
		text += " MiB/s"
		if lost := v.AToB.Relay.Lost; lost > 0 {
			text += fmt.Sprintf(", %d packets lost", lost)
		}
		return text, nil
	}
}

// transmit runs xwarp doctor --measure on host A while a daemon runs on host B, and returns the rates that it prints.
func transmit(m *machine) (string, error) {
	d, err := m.StartDaemon(hostB, trial.NIC, "")
	if err != nil {
		return "", err
	}
	out, err := m.Script(in(hostA, xwarp+" doctor --measure --interface eth0 --json || true"))
	if err = errors.Join(err, m.Interrupt(d)); err != nil {
		return "", err
	}
	var v struct {
		Lines []struct{ Check, What string }
	}
	if err := output.JSON(out, &v); err != nil {
		return "", err
	}
	for _, l := range v.Lines {
		if l.Check != "transmit" {
			continue
		}
		if !strings.Contains(l.What, "Gbit/s") {
			return "", errors.New(l.What)
		}
		return l.What, nil
	}
	return "", errors.New("doctor has no transmit check")
}

// moved copies the payload to the server at addr and back by xwarp cp --json, and returns both rates as text. run runs
// xwarp with the given arguments.
func moved(run func(args ...string) (string, error), addr string, flags ...string) (string, error) {
	rate := func(from, to string) (float64, error) {
		out, err := run(append([]string{"cp", from, to, "--json"}, flags...)...)
		if err != nil {
			return 0, errors.New(output.LastLine(out))
		}
		var m output.Moved
		err = output.JSON(out, &m)
		return m.Rate(), err
	}
	to, err := rate(payload, addr+":/file")
	if err != nil {
		return "", err
	}
	from, err := rate(addr+":/file", payload+".back")
	return fmt.Sprintf("%.1f / %.1f MiB/s", to, from), err
}

// inMachine runs xwarp on host A.
func (m *machine) inMachine(args ...string) (string, error) {
	return m.Script(in(hostA, xwarp+" "+strings.Join(args, " ")))
}

const compare = "cmp " + payload + " " + payload + ".back\nrm " + payload + ".back"

// export is the configuration of a daemon's export for cp.
const export = `[[export]]
name = "lab"
listen = "0.0.0.0:7174"
serve = "directory"
path = "` + trial.Served + `"`

// startExport starts a daemon that exports an empty directory.
func (m *machine) startExport(host string) (*vm.Process, error) {
	if err := m.Do(trial.MakeServed); err != nil {
		return nil, err
	}
	return m.StartDaemon(host, trial.NIC, export)
}

// modes returns as text the XDP, copy and transmit modes of the device of a host's daemon.
func (m *machine) modes(host string) (string, error) {
	devices, err := m.Status(host)
	if err != nil {
		return "", err
	}
	d := devices[0]
	return d.XDPMode + ", " + d.Copy + ", " + d.Transmit, nil
}

func daemons(m *machine) (text string, err error) {
	b, err := m.startExport(hostB)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, m.Interrupt(b)) }()
	a, err := m.StartDaemon(hostA, trial.NIC, "")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, m.Interrupt(a)) }()
	text, err = moved(m.inMachine, trial.Server, "--transport", "daemon", "--socket",
		trial.Socket(hostA))
	if err != nil {
		return "", err
	}
	if err := m.Do(compare); err != nil {
		return "", err
	}
	how, err := m.modes(hostB)
	return how + ", " + text, err
}

// virtio copies from this computer to a daemon in the machine and back, over the machine's virtio-net card.
func virtio(m *machine) (text string, err error) {
	d, err := m.startExport("")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, m.Interrupt(d)) }()
	dir, err := os.MkdirTemp("", "xwarp")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	here, back := filepath.Join(dir, "payload"), filepath.Join(dir, "back")
	data := make([]byte, payloadMiB<<20)
	for i := range data {
		data[i] = byte(i * i >> 7)
	}
	if err := os.WriteFile(here, data, 0o600); err != nil {
		return "", err
	}
	text, err = moved(func(args ...string) (string, error) {
		for i, a := range args {
			switch a {
			case payload:
				args[i] = here
			case payload + ".back":
				args[i] = back
			}
		}
		return m.here(args...)
	}, m.Addr4.String(), "--transport", "xdp", "--interface", vm.PeerLink)
	if err != nil {
		return "", err
	}
	got, err := os.ReadFile(back)
	if err == nil && string(got) != string(data) {
		err = errors.New("the data returned differs from the data sent")
	}
	if err != nil {
		return "", err
	}
	how, err := m.modes("")
	return how + ", " + text, err
}

func sockets(m *machine) (text string, err error) {
	if err := m.Do(trial.MakeServed); err != nil {
		return "", err
	}
	p, err := m.Background(in(hostB, xwarp+" serve "+trial.Served+
		" --transport kernel --listen "+trial.Server), trial.Server)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, p.Kill()) }()
	if text, err = moved(m.inMachine, trial.Server, "--transport", "kernel"); err != nil {
		return "", err
	}
	return text, m.Do(compare)
}
