package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os/user"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"xwarp/engine/budget"
	"xwarp/engine/daemon/rendezvous"
	"xwarp/engine/plain"
	"xwarp/engine/ranges"
	"xwarp/engine/verbs"
)

// complete sets the defaults of keys that are absent from tables in double brackets.
func (c *Config) complete() {
	for i := range c.Interface {
		f := &c.Interface[i]
		def(&f.Transport, TransportXDP)
		def(&f.XDPMode, "auto")
		def(&f.RingMode, "auto")
		def(&f.Transmit, "auto")
		def(&f.Restart, RestartReopen)
		def(&f.Idle, "adaptive")
		def(&f.BusyPoll, Duration(50*time.Microsecond))
		if f.Transport == TransportKernel {
			def(&f.PortMapper, PortMapperOff)
		}
		def(&f.PortMapper, PortMapperAnswer)
		f.completeIPsec()
	}
	for i := range c.Export {
		e := &c.Export[i]
		def(&e.Serve, ServeMemory)
		def(&e.Access, AccessReadWrite)
		if e.Memory == "" && e.Path != "" {
			e.Memory = MemoryFile
		}
		def(&e.Memory, MemoryAnonymous)
		def(&e.Connections, 64)
		if e.Interface == "" && len(c.Interface) > 0 {
			e.Interface = c.Interface[0].Name
		}
	}
}

func def[T comparable](v *T, d T) { *v = cmp.Or(*v, d) }

// faults collects errors. Each begins with the file, variable or flag that the value comes from.
type faults struct {
	path    string
	origins map[string]Origin
	errs    []error
}

func (f *faults) addf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	key, _, _ := strings.Cut(text, " ")
	where := cmp.Or(string(f.origins[key]), f.path, "configuration")
	f.errs = append(f.errs, fmt.Errorf("%s: %s", where, text))
}

func (f *faults) oneOf(key, got string, words ...string) {
	if !slices.Contains(words, got) {
		f.addf("%s = %q: must be one of %s%s", key, got, strings.Join(words, ", "),
			alike(got, words))
	}
}

func (f *faults) atLeast(key string, got, least int) {
	if got >= 0 && got < least { // notNegative reports negative numbers
		f.addf("%s = %d: must be %d or more", key, got, least)
	}
}

// notNegative checks that no number and no time in a table or list is negative. AutoTime is checked where it is parsed.
func (f *faults) notNegative(name string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Int, reflect.Int64:
		if _, auto := v.Interface().(AutoTime); v.Int() < 0 && !auto {
			f.addf("%s = %v: must be 0 or more", name, v)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			f.notNegative(name, v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			at := name
			if v.Type().Elem().Kind() == reflect.Struct {
				at = fmt.Sprintf("%s[%d]", name, i)
			}
			f.notNegative(at, v.Index(i))
		}
	case reflect.Struct:
		for field, v := range v.Fields() {
			if key(field) != "" {
				f.notNegative(strings.TrimPrefix(name+"."+key(field), "."), v)
			}
		}
	}
}

// atMost checks the upper limit of a number. notNegative checks the lower.
func (f *faults) atMost(key string, got, most int) {
	if got > most {
		f.addf("%s = %d: must be 0 to %d", key, got, most)
	}
}

func (f *faults) revision(key string, got int) {
	if got != 1 && got != 2 {
		f.addf("%s = %d: must be 1 or 2", key, got)
	}
}

func (f *faults) group(key, name string) {
	if name == "" {
		return
	}
	if _, err := GroupID(name); err != nil {
		f.addf("%s = %q: no such group (create it: groupadd --system %s)", key, name, name)
	}
}

// check returns all errors of the values. With partial, if only exports have errors, it instead removes these exports
// and sets Refused and RefusedBecause.
func (l *Loaded) check(partial bool) error {
	f := &faults{path: l.Path, origins: l.Origins}
	f.notNegative("", reflect.ValueOf(l.Config))
	d := &l.Daemon
	f.oneOf("daemon.log_level", d.LogLevel, "error", "warn", "info", "debug")
	f.oneOf("daemon.log_format", d.LogFormat, "text", "json", "auto")
	f.atLeast("daemon.clients", d.Clients, 1)
	if d.Stall >= 0 && d.Stall < Duration(100*time.Millisecond) {
		f.addf("daemon.stall = %q: must be 100ms or more, or a busy machine looks stalled", d.Stall)
	}
	if d.Socket != "" && (!filepath.IsAbs(d.Socket) || len(d.Socket) > 100) {
		f.addf("daemon.socket = %q: must be an absolute path of at most 100 characters",
			d.Socket)
	}
	if p := d.OperatorSocket(); p != "" && (!filepath.IsAbs(p) || len(p) > 106 || p == d.Socket) {
		f.addf("daemon.admin_socket = %q: must be an absolute path of at most 106 characters, "+
			"other than daemon.socket", p)
	}
	if d.Confirm > 0 && d.OperatorSocket() == "" {
		f.addf("daemon.confirm = %q needs daemon.socket and daemon.admin_socket: xwarp confirm "+
			"uses the latter", d.Confirm)
	}
	f.group("daemon.socket_group", d.SocketGroup)
	f.group("daemon.capture_group", d.CaptureGroup)
	f.revision("mpa.revision", l.MPA.Revision)
	if l.MPA.Revision == 1 && l.MPA.PeerToPeer && l.Origins["mpa.peer_to_peer"] != "" {
		f.addf("mpa.peer_to_peer = true needs mpa.revision = 2")
	}
	for _, key := range l.MPA.Override {
		f.oneOf("mpa.override", key, Overridable...)
	}
	l.checkHTTP(f)
	l.checkInterfaces(f)
	l.checkUsers(f)
	l.checkTenants(f)
	l.checkPeers(f)
	others := len(f.errs)
	wrong := l.checkExports(f)
	err := errors.Join(f.errs...)
	if !partial || others > 0 || err == nil {
		return err
	}
	l.RefusedBecause = err
	l.Refused = wrong
	l.Export = slices.DeleteFunc(l.Export, func(e Export) bool {
		return slices.Contains(wrong, e.Name)
	})
	return nil
}

// maxInterfaceName is the maximum length of the name of an interface. The RDMA device is named "xwarp_" and this name,
// which may have 63 characters in all.
const maxInterfaceName = 57

func (l *Loaded) checkInterfaces(f *faults) {
	seen := map[string]bool{}
	for i := range l.Interface {
		n := &l.Interface[i]
		key := fmt.Sprintf("interface[%d]", i)
		if n.Name == "" {
			f.addf("%s has no name (see: ip -br link)", key)
		}
		if len(n.Name) > maxInterfaceName {
			f.addf("%s.name = %q: must have at most %d characters, so that programs can show it "+
				"as a device: use a shorter name (see: ip link show)", key, n.Name,
				maxInterfaceName)
		}
		if seen[n.Name] {
			f.addf("%s: duplicate interface %q: list all its queues in one table", key, n.Name)
		}
		seen[n.Name] = true
		f.oneOf(key+".transport", n.Transport, TransportXDP, TransportKernel)
		f.oneOf(key+".xdp_mode", n.XDPMode, "auto", "native", "generic")
		f.oneOf(key+".ring_mode", n.RingMode, "auto", "zero-copy", "copy")
		f.oneOf(key+".transmit", n.Transmit, "auto", "xdp", "packet-gso")
		f.oneOf(key+".idle", n.Idle, "adaptive", "spin", "sleep")
		if n.BusyPoll == 0 {
			f.addf("%s.busy_poll = %q: must be more than 0; see idle = \"spin\" and \"sleep\"",
				key,
				n.BusyPoll)
		}
		f.atMost(key+".dscp", n.DSCP, verbs.MaxDSCP)
		f.atMost(key+".hop_limit", n.HopLimit, 255)
		f.oneOf(key+".restart", n.Restart, RestartReopen, RestartExit, RestartNever)
		f.oneOf(key+".port_mapper", n.PortMapper, PortMapperOff, PortMapperAnswer, PortMapperAsk)
		if n.PortMapper == PortMapperAsk && n.Transport == TransportKernel {
			f.addf("%s.port_mapper = \"ask\" needs transport = \"xdp\": a kernel socket has no port "+
				"yet when the query is sent", key)
		}
		if len(n.CPUs) > 0 && len(n.Queues) > 0 && len(n.CPUs) != len(n.Queues) {
			f.addf("%s.cpus has %s for %s", key, plain.Count(len(n.CPUs), "CPU"),
				plain.Count(len(n.Queues), "queue"))
		}
		if len(n.Allow) > 0 && n.Transport == TransportKernel {
			f.addf("%s.allow needs transport = \"xdp\": "+
				"use the host's firewall for kernel sockets", key)
		}
		l.checkIPsec(f, i)
	}
}

func (l *Loaded) checkUsers(f *faults) {
	f.ports("limits.ports", l.Limits.Ports)
	f.atMost("limits.dscp", l.Limits.DSCP, verbs.MaxDSCP)
	l.uids = map[string]uint32{}
	for i, u := range l.User {
		key := fmt.Sprintf("user[%d]", i)
		if u.Name == "" {
			f.addf("%s has no name", key)
			continue
		}
		if u.Name != TenantUser {
			uid, err := UserID(u.Name)
			if err != nil {
				f.addf("%s.name = %q: no such user", key, u.Name)
			}
			l.uids[u.Name] = uid
		}
		f.ports(key+".ports", u.Ports)
		if u.DSCP != nil {
			f.atMost(key+".dscp", *u.DSCP, verbs.MaxDSCP)
		}
	}
}

// checkTenants checks [tenants], and that a tenant can hold all that its limits allow: its share of the shared memory
// mappings of the daemon must suffice for them.
func (l *Loaded) checkTenants(f *faults) {
	t := &l.Tenants
	if t.Count > budget.MaxTenants {
		f.addf("tenants.count = %d: must be 0 to %d", t.Count, budget.MaxTenants)
	}
	if t.Count <= 0 {
		return
	}
	if l.Daemon.Socket == "" {
		f.addf("tenants.count = %d needs daemon.socket: without it no program is served",
			t.Count)
	}
	if d := t.Directory; !filepath.IsAbs(d) || filepath.Clean(d) == "/" || len(d) > 70 {
		f.addf("tenants.directory = %q: must be an absolute path of at most 70 characters", d)
	}
	each := l.TenantLimits()
	if n, most := each.Amounts()[budget.Mappings], budget.TenantShare(budget.MaxMappings,
		t.Count); n > most {
		f.addf("tenants.count = %d: limits allow each %d shared memory mappings, but each tenant "+
			"of %d gets %d: lower sessions, mrs, cqs (counted twice), srqs or qps in the "+
			"[[user]] table named %q", t.Count, n, t.Count, most, TenantUser)
	}
}

func (l *Loaded) checkPeers(f *faults) {
	if k := l.Peers.Keepalive.D(); k > 0 && k < time.Second {
		f.addf("peers.keepalive = %q: must be 1s or more, or 0s to disable", l.Peers.Keepalive)
	}
	for i, p := range l.Peer {
		key := fmt.Sprintf("peer[%d]", i)
		if !p.Prefix.IsValid() {
			f.addf("%s.prefix is missing, such as \"192.0.2.0/24\"", key)
		}
		if p.Revision != nil {
			f.revision(key+".revision", *p.Revision)
		}
	}
}

// checkExports checks all exports. It returns the names of those with errors.
func (l *Loaded) checkExports(f *faults) (wrong []string) {
	names := map[string]bool{}
	for i := range l.Export {
		e, before := &l.Export[i], len(f.errs)
		l.checkExport(f, i, names)
		if len(f.errs) > before {
			wrong = append(wrong, e.Name)
		}
	}
	return wrong
}

func (l *Loaded) checkExport(f *faults, i int, names map[string]bool) {
	e, key := &l.Export[i], fmt.Sprintf("export[%d]", i)
	if e.Name == "" {
		f.addf("%s has no name", key)
	}
	if names[e.Name] {
		f.addf("%s: duplicate name %q", key, e.Name)
	}
	names[e.Name] = true
	if e.Listen.Port() == 0 {
		f.addf("%s.listen is missing: an address with a port, such as \":7174\"", key)
	}
	if e.Listen.Port() == rendezvous.Port {
		f.addf("%s.listen = %q: port %d is reserved for queue pairs of ibv_modify_qp between daemons: use "+
			"another port", key, e.Listen, rendezvous.Port)
	}
	for _, other := range l.Export[:i] {
		if e.isFile() && other.isFile() && filepath.Clean(e.Path) == filepath.Clean(other.Path) {
			f.addf("%s.path = %q: export %s uses the same file", key, e.Path, other.Name)
		}
		if e.Listen.Port() != 0 && e.Listen.overlaps(other.Listen) {
			f.addf("%s.listen = %q: export %s already listens on %q: use another port", key,
				e.Listen, other.Name, other.Listen)
		}
	}
	if !slices.ContainsFunc(l.Interface, func(n Interface) bool {
		return n.Name == e.Interface
	}) {
		f.addf("%s.interface = %q: no such [[interface]]", key, e.Interface)
	}
	if e.Serve == "transfer" { // a value of earlier versions
		f.addf("%s.serve = \"transfer\" does not exist any more: use \"directory\", and xwarp cp "+
			"instead of put and get", key)
		return
	}
	f.oneOf(key+".serve", e.Serve, ServeMemory, ServeDirectory)
	f.oneOf(key+".memory", e.Memory, MemoryAnonymous, MemoryHugePages, MemoryFile)
	f.oneOf(key+".access", e.Access, AccessRead, AccessWrite, AccessReadWrite)
	f.atLeast(key+".connections", e.Connections, 1)
	f.atMost(key+".dscp", e.DSCP, verbs.MaxDSCP)
	switch {
	case e.Serve == ServeDirectory && !filepath.IsAbs(e.Path):
		f.addf("%s.path = %q: serve = \"directory\" needs an absolute path", key, e.Path)
	case e.Serve == ServeDirectory && e.Access == AccessWrite:
		f.addf("%s: serve = \"directory\" needs access = \"read\" or \"read-write\"", key)
	case e.Memory == MemoryFile && !filepath.IsAbs(e.Path):
		f.addf("%s.path = %q: memory = \"file\" needs an absolute path", key, e.Path)
	case e.Memory != MemoryFile && e.Path != "":
		f.addf("%s.path needs memory = \"file\"", key)
	case e.Memory != MemoryFile && e.Size == 0:
		f.addf("%s.size is missing, such as \"64MiB\"", key)
	case e.Serve != ServeMemory && len(e.Allow) > 0:
		f.addf("%s: allow is not supported with serve = %q; use [[peer]]", key, e.Serve)
	}
}

// ports checks a list such as "7174" and "1024-65535".
func (f *faults) ports(key string, list []string) {
	for _, s := range list {
		if _, ok := ranges.Parse(s, math.MaxUint16); !ok {
			f.addf("%s: %q is not a port or a range of ports", key, s)
		}
	}
}

// UserID returns the number of a user given by name or number.
func UserID(name string) (uint32, error) {
	if n, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(n), nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(u.Uid, 10, 32)
	return uint32(n), err
}

// GroupID returns the number of a group given by name or number.
func GroupID(name string) (int, error) {
	if n, err := strconv.Atoi(name); err == nil {
		return n, nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(g.Gid)
}
