package install

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
)

// unit holds the keys of a unit file's [Service] section, each with its values in the order of the file.
type unit map[string][]string

func readUnit(path string) (unit, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	u, section := unit{}, ""
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		key, value, ok := strings.Cut(line, "=")
		switch {
		case strings.HasPrefix(line, "["):
			section = line
		case ok && section == "[Service]" && !strings.HasPrefix(line, "#"):
			u[key] = append(u[key], value)
		}
	}
	return u, nil
}

// one returns the only value of a key.
func (u unit) one(key string) string {
	if v := u[key]; len(v) == 1 {
		return v[0]
	}
	return ""
}

var capabilityNames = map[string]uintptr{
	"CAP_NET_ADMIN": unix.CAP_NET_ADMIN, "CAP_NET_RAW": unix.CAP_NET_RAW, "CAP_BPF": unix.CAP_BPF,
	"CAP_PERFMON":          unix.CAP_PERFMON,
	"CAP_NET_BIND_SERVICE": unix.CAP_NET_BIND_SERVICE,
}

func (u unit) capabilities(key string) (list []uintptr, err error) {
	for name := range strings.FieldsSeq(u.one(key)) {
		c, ok := capabilityNames[name]
		if !ok {
			return nil, fmt.Errorf("%s: %s is not known to this test", key, name)
		}
		list = append(list, c)
	}
	return list, nil
}

// syscallGroups asks systemd what its groups of system calls hold.
func syscallGroups() (map[string][]string, error) {
	out, err := exec.Command("systemd-analyze", "syscall-filter", "--no-pager").Output()
	if err != nil {
		return nil, fmt.Errorf("systemd-analyze syscall-filter: %w", err)
	}
	groups, name := map[string][]string{}, ""
	for line := range strings.Lines(string(out)) {
		word := strings.TrimSpace(line)
		switch {
		case word == "" || word[0] == '#':
		case line[0] == '@':
			name = word
		case line[0] == ' ' && name != "":
			groups[name] = append(groups[name], word)
		}
	}
	return groups, nil
}

// syscalls returns what SystemCallFilter lets through, on this architecture.
func (u unit) syscalls(known map[string]int) ([]string, error) {
	groups, err := syscallGroups()
	if err != nil {
		return nil, err
	}
	allowed := map[string]bool{}
	var set func(name string, on bool) error
	set = func(name string, on bool) error {
		if name[0] != '@' {
			if _, here := known[name]; here && on {
				allowed[name] = true
			} else {
				delete(allowed, name)
			}
			return nil
		}
		if len(groups[name]) == 0 {
			return fmt.Errorf("systemd has no group %s", name)
		}
		for _, n := range groups[name] {
			if err := set(n, on); err != nil {
				return err
			}
		}
		return nil
	}
	for _, line := range append([]string{"@default"}, u["SystemCallFilter"]...) {
		names, off := strings.CutPrefix(line, "~")
		for n := range strings.FieldsSeq(names) {
			if err := set(n, !off); err != nil {
				return nil, err
			}
		}
	}
	return slices.Sorted(maps.Keys(allowed)), nil
}

var families = map[string]uint64{
	"AF_UNIX": unix.AF_UNIX, "AF_NETLINK": unix.AF_NETLINK, "AF_XDP": unix.AF_XDP,
	"AF_INET": unix.AF_INET, "AF_INET6": unix.AF_INET6,
}

// confine gives the calling thread the system-call filters that systemd would. It has no way back.
func (u unit) confine() error {
	info, err := arch.GetInfo("")
	if err != nil {
		return err
	}
	allowed, err := u.syscalls(info.SyscallNames)
	if err != nil {
		return err
	}
	var sockets []seccomp.NameWithConditions
	for name := range strings.FieldsSeq(u.one("RestrictAddressFamilies")) {
		f, ok := families[name]
		if !ok {
			return fmt.Errorf("RestrictAddressFamilies: %s is not known to this test", name)
		}
		sockets = append(sockets, argument("socket", 0, seccomp.Equal, f))
	}
	for _, p := range []seccomp.Policy{
		// RestrictNamespaces=yes
		{DefaultAction: seccomp.ActionAllow, Syscalls: []seccomp.SyscallGroup{
			{Action: seccomp.ActionErrno, Names: []string{"setns", "unshare"}},
			{Action: seccomp.ActionErrno, NamesWithCondtions: []seccomp.NameWithConditions{
				argument("clone", 0, seccomp.BitsSet, unix.CLONE_NEWNET)}},
		}},
		{DefaultAction: seccomp.ActionAllow, Syscalls: []seccomp.SyscallGroup{
			{Action: seccomp.ActionAllow, NamesWithCondtions: sockets},
			{Action: seccomp.ActionErrno, Names: []string{"socket"}},
		}},
		// MemoryDenyWriteExecute=yes
		{DefaultAction: seccomp.ActionAllow, Syscalls: []seccomp.SyscallGroup{
			{Action: seccomp.ActionErrno, NamesWithCondtions: []seccomp.NameWithConditions{
				{Name: "mmap", Conditions: seccomp.ArgumentConditions{
					{Argument: 2, Operation: seccomp.BitsSet, Value: unix.PROT_WRITE},
					{Argument: 2, Operation: seccomp.BitsSet, Value: unix.PROT_EXEC},
				}},
				argument("mprotect", 2, seccomp.BitsSet, unix.PROT_EXEC),
			}},
		}},
		{DefaultAction: seccomp.ActionErrno,
			Syscalls: []seccomp.SyscallGroup{{Action: seccomp.ActionAllow, Names: allowed}}},
	} {
		if err := seccomp.LoadFilter(seccomp.Filter{NoNewPrivs: true, Policy: p}); err != nil {
			return err
		}
	}
	return nil
}

func argument(name string, n uint32, op seccomp.Operation, v uint64) seccomp.NameWithConditions {
	return seccomp.NameWithConditions{Name: name, Conditions: seccomp.ArgumentConditions{
		{Argument: n, Operation: op, Value: v}}}
}

// The unit stays as hardened as it is promised to be.
func TestExposure(t *testing.T) {
	out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--threshold=26",
		"--no-pager", "xwarpd.service").CombinedOutput()
	if err != nil {
		t.Errorf("systemd-analyze security: above 2.6: %v\n%s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	t.Log(lines[len(lines)-1])
	if !strings.Contains(string(out), "Overall exposure level for xwarpd.service") {
		t.Errorf("systemd-analyze says something else:\n%s", out)
	}
}
