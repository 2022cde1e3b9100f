package config

import (
	"encoding"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"
	"github.com/google/go-cmp/cmp"

	"xwarp/engine/budget"
	"xwarp/engine/testkit/havoc"
)

func write(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "xwarp.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func env(pairs ...string) (list []string) {
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, pairs[i]+"="+pairs[i+1])
	}
	return list
}

// loadFails checks that a file with text is refused with a message that starts with the file's path and contains want.
func loadFails(t *testing.T, text, want string) {
	t.Helper()
	path := write(t, text)
	_, err := Load(Source{Path: path})
	if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), path) {
		t.Errorf("%v, want %q after the file name", err, want)
	}
}

// TestRemovedKeys: a file of the previous release with removed keys still loads, with a warning for each of them. A
// removed value of a key also causes a warning, and the default replaces it.
func TestRemovedKeys(t *testing.T) {
	const text = "[[interface]]\nname = \"eth0\"\ntransmit = \"xdp-live\"\n" +
		"trust_partial_checksum = true\n[[interface]]\nname = \"eth1\"\n" +
		"trust_partial_checksum = false\n[[export]]\nname = \"x\"\nlisten = \":7174\"\nsize = 4096\n" +
		"in_place = true\n"
	path := filepath.Join(t.TempDir(), "xwarp.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Load(Source{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(l.Removed, "\n")
	if way := l.Interface[0].Transmit; way != "auto" || !strings.Contains(all, "xdp-live") {
		t.Errorf("transmit is %q, and no warning of it: %s", way, all)
	}
	for key := range removedKeys {
		if !strings.Contains(all, key+" has no effect any more, delete it") {
			t.Errorf("no warning of %s: %s", key, all)
		}
		if slices.Contains(knownKeys(), key) {
			t.Errorf("%s is a key", key)
		}
	}
}

func TestErrors(t *testing.T) {
	const nic = "[[interface]]\nname = \"eth0\"\n"
	for _, tc := range []struct {
		name, text, want string
	}{
		{"syntax", "[daemon]\nsocket = /run\n", ":2: "},
		{"type", "[daemon]\nclients = \"many\"\n", "clients"},
		{"unknown key", "[daemon]\nsokcet = \"/run/x\"\n",
			`:2: unknown key "daemon.sokcet": did you mean "daemon.socket"?`},
		{"unknown table", "[limit]\nqps = 4\n", `:1: unknown key "limit": did you mean "limits"?`},
		{"wrong table", "[daemon]\nqps = 4\n",
			`:2: unknown key "daemon.qps": did you mean "limits.qps"?`},
		{"nothing alike", "[daemon]\nxyzzyplugh = 4\n",
			`unknown key "daemon.xyzzyplugh" (see: xwarp config default)`},
		{"unknown key of an array", nic + "queue = 1\n",
			`:3: unknown key "interface.queue": did you mean "interface.queues"?`},
		{"word", "[daemon]\nlog_level = \"infos\"\n",
			`daemon.log_level = "infos": must be one of error, warn, info, debug: did you mean "info"?`},
		{"relative socket", "[daemon]\nsocket = \"x\"\n", "absolute path"},
		{"group", "[daemon]\nsocket_group = \"no-such-group\"\n", "groupadd"},
		{"mode", "[daemon]\nsocket_mode = \"rw\"\n", "0660"},
		{"time", "[daemon]\ngrace = \"soon\"\n", `"soon" is not a duration`},
		{"time below zero", "[daemon]\nconfirm = \"-1s\"\n",
			`"-1s" is negative: write auto, 0s or a duration`},
		{"nobody can confirm", "[daemon]\nsocket = \"\"\nconfirm = \"1m\"\n",
			`daemon.confirm = "1m0s" needs daemon.socket`},
		{"size", "[limits]\nmemory = \"1 parsec\"\n", `"1 parsec" is not a size`},
		{"too many tenants", "[tenants]\ncount = 1025\n",
			"tenants.count = 1025: must be 0 to 1024"},
		{"tenants without programs", "[daemon]\nsocket = \"\"\n[tenants]\ncount = 1\n",
			"tenants.count = 1 needs daemon.socket"},
		{"tenants without a directory", "[tenants]\ncount = 1\ndirectory = \"x\"\n", "absolute"},
		{"tenants that have too much", "[tenants]\ncount = 6\n",
			`gets 5120: lower sessions, mrs, cqs (counted twice), srqs or qps in the [[user]] table named "tenants"`},
		{"ports", "[limits]\nports = [\"9-1\"]\n", `"9-1" is not a port`},
		{"revision", "[mpa]\nrevision = 3\n", "mpa.revision = 3"},
		{"peer-to-peer", "[mpa]\nrevision = 1\npeer_to_peer = true\n", "needs mpa.revision = 2"},
		{"interface without name", "[[interface]]\nmtu = 1500\n", "interface[0] has no name"},
		{"interface twice", nic + nic, `duplicate interface "eth0"`},
		{"processors", nic + "queues = [0, 1]\ncpus = [3]\n", "1 CPU for 2 queues"},
		{"idle", nic + "idle = \"spins\"\n",
			`interface[0].idle = "spins": must be one of adaptive, spin, sleep`},
		{"spinning below zero", nic + "busy_poll = \"-1s\"\n", `busy_poll = -1s`},
		{"transport", nic + "transport = \"xpd\"\n", `did you mean "xdp"?`},
		{"metrics everywhere", "[http]\nlisten = \":9479\"\n",
			`http.listen = ":9479": write an address with a port, such as "127.0.0.1:9479"`},
		{"metrics without port", "[http]\nlisten = \"127.0.0.1\"\n", "an address with a port"},
		{"metrics on any port", "[http]\nlisten = \"127.0.0.1:0\"\n", "an address with a port"},
		{"metrics on a name", "[http]\nlisten = \"localhost:9479\"\n", `"127.0.0.1:9479"`},
		{"metrics on the control socket", "[daemon]\nsocket = \"/run/x\"\n[http]\nlisten = " +
			"\"/run/x\"\n", "a path each"},
		{"metrics on a long path", "[http]\nlisten = \"/" + strings.Repeat("x", 100) + "\"\n",
			"at most 100"},
		{"a page without a place", "[http]\nstatus_page = true\n", "needs http.listen"},
		{"a host with a port", "[http]\nhosts = [\"xwarp.example:80\"]\n",
			`"xwarp.example:80" is no host name`},
		{"user", "[[user]]\nname = \"no such user\"\n", "no such user"},
		{"one pair of brackets", "[interface]\nname = \"eth0\"\n", "write [[interface]]"},
		{"type", nic + "queues = [0, \"a\"]\n", "must be of type integer"},
		{"export without an address", nic + "[[export]]\nlisten = \"7174\"\n",
			`"7174" is not an address with a port: write "192.0.2.1:7174"`},
		{"prefix without length", "[[peer]]\nprefix = \"192.0.2.1\"\n",
			`peer.prefix = "192.0.2.1": write a prefix such as "192.0.2.0/24"`},
		{"exports on one port", nic + "[[export]]\nname = \"x\"\nlisten = \":1\"\nsize = 1\n" +
			"[[export]]\nname = \"y\"\nlisten = \"[::1]:1\"\nsize = 1\n",
			`export[1].listen = "[::1]:1": export x already listens on ":1"`},
		{"export on the port between daemons", nic + "[[export]]\nname = \"x\"\nlisten = " +
			"\":4791\"\nsize = 1\n",
			`export[0].listen = ":4791": port 4791 is reserved for queue pairs of ibv_modify_qp`},
		{"exports of one file", nic + "[[export]]\nname = \"x\"\nlisten = \":1\"\npath = \"/f\"\n" +
			"[[export]]\nname = \"y\"\nlisten = \":2\"\npath = \"/f\"\n",
			"export x uses the same file"},
		{"class of an interface", nic + "dscp = 64\n", "interface[0].dscp = 64: must be 0 to 63"},
		{"class of all programs", "[limits]\ndscp = 64\n", "limits.dscp = 64: must be 0 to 63"},
		{"class of a user", "[[user]]\nname = \"root\"\ndscp = 256\n",
			"user[0].dscp = 256: must be 0 to 63"},
		{"class of an export", nic + "[[export]]\nname = \"x\"\nlisten = \":1\"\nsize = 1\n" +
			"dscp = 64\n", "export[0].dscp = 64: must be 0 to 63"},
		{"hop limit", nic + "hop_limit = 256\n", "interface[0].hop_limit = 256: must be 0 to 255"},
		{"prefix", "[[peer]]\nprefix = \"192.0.2.1/33\"\n", "192.0.2.1/33"},
		{"peers below zero", "[peers]\nnetwork_startup = -1\n", "peers.network_startup = -1"},
		{"keepalive", "[peers]\nkeepalive = \"5ms\"\n", "peers.keepalive"},
		{"no prefix", "[[peer]]\nallow = false\n", "peer[0].prefix is missing"},
		{"export of nothing", "[[export]]\nname = \"x\"\nlisten = \"0.0.0.0:1\"\nsize = 1\n",
			"no such [[interface]]"},
		{"export without size", nic + "[[export]]\nname = \"x\"\nlisten = \"0.0.0.0:1\"\n",
			"export[0].size is missing"},
		{"export without address", nic + "[[export]]\nname = \"x\"\nsize = 1\n",
			"export[0].listen is missing"},
		{"export twice", nic + strings.Repeat("[[export]]\nname = \"x\"\nsize = 1\nlisten = "+
			"\"0.0.0.0:1\"\n", 2), `duplicate name "x"`},
		{"export of a relative file", nic +
			"[[export]]\nname = \"x\"\nlisten = \"0.0.0.0:1\"\npath = \"x\"\n", "absolute path"},
		{"directory without path", nic + "[[export]]\nname = \"x\"\nlisten = \"0.0.0.0:1\"\n" +
			"serve = \"directory\"\nsize = 1\n", "needs an absolute path"},
		{"transfer", nic + "[[export]]\nname = \"x\"\nlisten = \"0.0.0.0:1\"\nsize = " +
			"1\nserve = \"transfer\"\n", "use \"directory\", and xwarp cp"},
	} {
		t.Run(tc.name, func(t *testing.T) { loadFails(t, tc.text, tc.want) })
	}
}

func TestErrorsElsewhere(t *testing.T) {
	path := write(t, "")
	for _, tc := range []struct {
		name string
		src  Source
		want string
	}{
		{"no file", Source{Path: "/no/such/file"}, "xwarp config default > /no/such/file"},
		{"directory", Source{Path: t.TempDir()}, "is a directory"},
		{"flag", Source{Path: path, Set: []string{"daemon.logl_evel=info"}},
			`did you mean "daemon.log_level"?`},
		{"flag without value", Source{Path: path, Set: []string{"daemon.log_level"}}, "key=value"},
		{"number", Source{Path: path, Set: []string{"limits.qps=x"}},
			`--set limits.qps: "x" is not a number`},
		{"environment", Source{Path: path, Env: env("XWARP_MPA_MARKERS", "perhaps")},
			`$XWARP_MPA_MARKERS: mpa.markers: "perhaps"`},
		{"misspelt variable", Source{Path: path, Env: env("XWARP_DAEMON_LOGLEVEL", "debug")},
			`$XWARP_DAEMON_LOGLEVEL: no such key: did you mean "XWARP_DAEMON_LOG_LEVEL"?`},
		{"variable of an array", Source{Path: path, Env: env("XWARP_INTERFACE_MTU", "1500")},
			`$XWARP_INTERFACE_MTU: no such key`},
	} {
		if _, err := Load(tc.src); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		} else if tc.name != "no file" && strings.Contains(err.Error(), "create it") {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// TestNegative: every number and every time refuses a value below zero, and the error names the key.
func TestNegative(t *testing.T) {
	checked := 0
	var walk func(name string, v reflect.Type)
	walk = func(name string, v reflect.Type) {
		for f := range v.Fields() {
			of, list := f.Type, f.Type.Kind() == reflect.Slice
			if list || of.Kind() == reflect.Pointer {
				of = of.Elem()
			}
			value := "-1"
			switch of {
			case reflect.TypeFor[Duration](), reflect.TypeFor[AutoTime](), reflect.TypeFor[Size]():
				value = "\"-1s\""
			default:
				if isTables(f.Type) {
					walk(name+"."+key(f), of)
				}
				if of.Kind() != reflect.Int && of.Kind() != reflect.Int64 {
					continue
				}
			}
			if list {
				value = "[" + value + "]"
			}
			top, _, nested := strings.Cut(name, ".")
			text := "[" + name + "]\n"
			if nested {
				text = "[[" + top + "]]\n[[" + name + "]]\n"
			} else if table, _ := reflect.TypeFor[Config]().FieldByNameFunc(func(n string) bool {
				return strings.EqualFold(n, top)
			}); table.Type.Kind() == reflect.Slice {
				text = "[[" + name + "]]\n"
			}
			loadFails(t, text+key(f)+" = "+value+"\n", key(f))
			checked++
		}
	}
	for table := range reflect.TypeFor[Config]().Fields() {
		of := table.Type
		if of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		walk(key(table), of)
	}
	if checked < 55 {
		t.Errorf("%d keys", checked)
	}
	loadFails(t, "[limits]\nqps = -5\n", "limits.qps = -5: must be 0 or more")
	loadFails(t, "[mpa]\nfpdu_timeout = \"-1s\"\n", "mpa.fpdu_timeout = -1s: must be 0 or more")
}

func TestPrecedence(t *testing.T) {
	path := write(t, "[limits]\nqps = 1\ncqs = 1\nmrs = 1\n")
	l, err := Load(Source{
		Path: path, Env: env("XWARP_LIMITS_QPS", "2", "XWARP_LIMITS_CQS", "2", "XWARP_LIMITS_PORTS",
			"5, 7-9"), Set: []string{"limits.qps=3"},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]Value{}
	for _, v := range l.Values() {
		got[v.Key] = v
	}
	for _, want := range []Value{
		{"limits.qps", "3", "--set limits.qps", true},
		{"limits.cqs", "2", "$XWARP_LIMITS_CQS", true},
		{"limits.mrs", "1", Origin(path), true},
		{"limits.pds", "256", "default", true},
		{"limits.ports", `["5", "7-9"]`, "$XWARP_LIMITS_PORTS", true},
		{"daemon.socket", `"/run/xwarp/control.sock"`, "default", false},
	} {
		if d := cmp.Diff(want, got[want.Key]); d != "" {
			t.Errorf("%s (-want +got):\n%s", want.Key, d)
		}
	}
}

// TestShippedSetsNothing: the shipped file names every key of the tables in single brackets, and sets none.
func TestShippedSetsNothing(t *testing.T) {
	l, err := Load(Source{Path: write(t, CommentedDefault)})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range l.Values() {
		if v.Origin != OriginDefault {
			t.Errorf("%s is set in the shipped file", v.Key)
		}
		_, key, _ := strings.Cut(v.Key, ".")
		if !strings.Contains(CommentedDefault, "\n#"+key+" = ") {
			t.Errorf("%s is not in the shipped file", v.Key)
		}
	}
}

// TestManual checks that the default file has every key, that its commented-out examples are valid, and that the
// comment of each key outside [limits] that a reload applies says so.
func TestManual(t *testing.T) {
	live := uncomment(Default)
	var c Config
	meta, err := toml.Decode(live, &c)
	if err != nil {
		t.Fatalf("with its examples uncommented, the default file is wrong: %v\n%s", err, live)
	}
	if u := meta.Undecoded(); len(u) > 0 {
		t.Errorf("keys that do not exist: %v", u)
	}
	said := map[string]bool{}
	for _, k := range meta.Keys() {
		said[k.String()] = true
	}
	for _, k := range knownKeys() {
		limit, ok := strings.CutPrefix(k, "user.") // these are the keys of [limits]
		if !said[k] && !(ok && said["limits."+limit]) {
			t.Errorf("key %q does not stand in the default file", k)
		}
	}
	for _, s := range c.scalars() {
		line := lineOf(Default, toml.Key(strings.Split(s.name, ".")))
		block := strings.Join(strings.Split(Default, "\n")[max(0, line-5):line], "\n")
		if s.reload && !strings.Contains(block, "[reload]") &&
			!strings.HasPrefix(s.name, "limits.") {
			t.Errorf("%s can be reloaded, but its comment does not say so", s.name)
		}
	}
}

// uncomment turns the examples of the default file into live TOML. An example is a block of comment lines that starts
// with a table in double brackets.
func uncomment(text string) string {
	var b strings.Builder
	in := false
	for _, line := range strings.Split(text, "\n") {
		body, isComment := strings.CutPrefix(line, "# ")
		in = isComment && (in || strings.HasPrefix(body, "[["))
		if name, _, ok := strings.Cut(body, " ="); in && (strings.HasPrefix(body, "[[") || ok &&
			!strings.Contains(name, " ")) {
			line = body
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

func TestPolicies(t *testing.T) {
	l, err := Load(Source{Path: write(t, `
[[peer]]
prefix = "192.0.2.0/24"
allow = false
[[peer]]
prefix = "192.0.2.7/32"
markers = false
revision = 1
[[user]]
name = "65534"
qps = 3
memory = "1KiB"
ports = ["80"]
`)})
	if err != nil {
		t.Fatal(err)
	}
	a := netip.MustParseAddr
	if l.Allowed(a("192.0.2.1")) || l.Allowed(a("::ffff:192.0.2.1")) ||
		!l.Allowed(a("192.0.2.7")) || !l.Allowed(a("2001:db8::1")) {
		t.Error("the longest prefix must decide")
	}
	if m := l.MPAOf(a("192.0.2.7")); m.Markers || m.Revision != 1 || !m.CRC {
		t.Errorf("policy of a peer: %+v", m)
	}
	if m := l.MPAOf(a("192.0.2.8")); !m.Markers || m.Revision != 2 {
		t.Errorf("policy of another peer: %+v", m)
	}
	u := l.LimitsOf(65534)
	if u.QPs != 3 || u.Memory != 1024 || u.PDs != 256 || len(u.Ports) != 1 {
		t.Errorf("limits of a user: %+v", u)
	}
}

// TestOverridesAreOfKeys: each key of [[user]] and [[peer]] that overrides another has the name and the type of that
// other key.
func TestOverridesAreOfKeys(t *testing.T) {
	for _, c := range []struct {
		given, table reflect.Type
		except       []string
	}{
		{reflect.TypeFor[User](), reflect.TypeFor[Limits](), []string{"Name"}},
		{reflect.TypeFor[Peer](), reflect.TypeFor[MPA](), []string{"Prefix", "Allow", "HalfOpen",
			"Startup", "Connections", "ConnectionRate"}},
	} {
		for i := range c.given.NumField() {
			f := c.given.Field(i)
			typ := f.Type
			if typ.Kind() == reflect.Pointer {
				typ = typ.Elem()
			}
			of, found := c.table.FieldByName(f.Name)
			if found == slices.Contains(c.except, f.Name) || found && of.Type != typ {
				t.Errorf("%v.%s overrides %v", c.given, f.Name, of)
			}
		}
	}
}

func TestPeersOf(t *testing.T) {
	l, err := Load(Source{Path: write(t, "[peers]\nstartup = 5\n[[peer]]\nprefix = "+
		"\"192.0.2.0/24\"\nconnections = 40000\nhalf_open = 7\n")})
	if err != nil {
		t.Fatal(err)
	}
	want := l.Peers
	if d := cmp.Diff(want, l.PeerLimitsOf(netip.MustParseAddr("2001:db8::1"))); d != "" ||
		want.Startup != 5 || want.Keepalive.D() != time.Minute {
		t.Errorf("a peer without a table: %+v", want)
	}
	want.Connections, want.NetworkConnections, want.HalfOpen = 40000, 40000, 7
	if d := cmp.Diff(want, l.PeerLimitsOf(netip.MustParseAddr("::ffff:192.0.2.9"))); d != "" {
		t.Errorf("a peer with a table (-want +got):\n%s", d)
	}
}

func TestHTTPAddress(t *testing.T) {
	for listen, want := range map[string]string{
		"": "  true", "127.0.0.1:9479": "tcp 127.0.0.1:9479 true", "[::1]:80": "tcp [::1]:80 true",
		"0.0.0.0:80": "tcp 0.0.0.0:80 false",
		"[::]:80":    "tcp [::]:80 false", "192.0.2.1:80": "tcp 192.0.2.1:80 false",
		"/run/xwarp/http": "unix /run/xwarp/http true",
	} {
		h := HTTP{Listen: listen}
		network, address, err := h.Address()
		if got := fmt.Sprintf("%s %s %v", network, address, h.Loopback()); got != want ||
			err != nil {
			t.Errorf("%q: %s, %v; want %s", listen, got, err, want)
		}
	}
}

func TestChanged(t *testing.T) {
	load := func(text string) *Loaded {
		l, err := Load(Source{Path: write(t, text)})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	old := load("[[interface]]\nname = \"eth0\"\n")
	now := load(
		"[daemon]\nlog_level = \"debug\"\nsocket = \"/x\"\n[[interface]]\nname = \"eth1\"\n")
	if d := cmp.Diff([]string{"daemon.socket", "interface"}, old.KeysNeedingRestart(now)); d != "" {
		t.Errorf("settings that need a restart (-want +got):\n%s", d)
	}
	if c := old.KeysNeedingRestart(old); len(c) > 0 {
		t.Errorf("nothing changed, but %v", c)
	}
	otherPeers := load("[[interface]]\nname = \"eth0\"\nallow = [\"192.0.2.0/24\"]\n")
	if c := old.KeysNeedingRestart(otherPeers); len(c) > 0 {
		t.Errorf("the list of peers needs no restart, but %v", c)
	}
	for _, v := range old.Values() {
		if v.Key == "interface[0].allow" && !v.Reload || v.Key == "interface[0].queues" &&
			v.Reload {
			t.Errorf("%s: reload %v", v.Key, v.Reload)
		}
	}
}

func TestValuesAsText(t *testing.T) {
	for text, want := range map[string]Size{"0": 0, "4096": 4096, "64KiB": 64 << 10,
		"1 MiB": 1 << 20, "2TiB": 2 << 40} {
		var s Size
		if err := s.UnmarshalText([]byte(text)); err != nil || s != want {
			t.Errorf("%q is %d, %v; want %d", text, s, err, want)
		}
		var again Size
		if err := again.UnmarshalText([]byte(s.String())); err != nil || again != s {
			t.Errorf("%q printed is %q", text, s)
		}
	}
	for _, bad := range []string{"", "-1", "1.5GiB", "9999999999TiB", "KiB", "1PB"} {
		var s Size
		if s.UnmarshalText([]byte(bad)) == nil {
			t.Errorf("%q is taken as %d", bad, s)
		}
	}
	if Duration(time.Second).D() != time.Second {
		t.Error("Duration.D")
	}
}

func FuzzLoad(f *testing.F) {
	f.Add(Default)
	f.Add(uncomment(Default))
	f.Add("[daemon]\nsokcet=1\n[[peer]]\nprefix=\"::/0\"\n")
	dir := f.TempDir()
	path := filepath.Join(dir, "fuzz.toml")
	havoc.Fuzz(f, func(t *testing.T, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Skip()
		}
		if l, err := Load(Source{Path: path}); err == nil {
			l.Values()
		}
	})
}

// TestTenantsPromiseEveryKind: a configuration that lets each tenant have too many objects of one kind is refused, if
// objects of that kind use shared memory mappings. Mappings are shared by all tenants.
func TestTenantsPromiseEveryKind(t *testing.T) {
	for k := range budget.Limited {
		var one budget.Amounts
		one[k] = 1
		var small strings.Builder
		for other := range budget.Limited {
			n := 1
			if other == k {
				n = budget.MaxMappings
			}
			fmt.Fprintf(&small, "%v = %d\n", other, n)
		}
		path := filepath.Join(t.TempDir(), "xwarp.toml")
		text := fmt.Sprintf("[tenants]\ncount = 100\n[[user]]\nname = \"tenants\"\n%s", &small)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Load(Source{Path: path})
		if shared := one.Needs()[budget.Mappings] > 0; (err != nil) != shared {
			t.Errorf("%v takes mappings: %v; many of it for each tenant: %v", k, shared, err)
		}
	}
}

// TestValuesInJSON: no type of a configuration value is written to a JSON log as an empty object.
func TestValuesInJSON(t *testing.T) {
	var walk func(v reflect.Type)
	seen := 0
	walk = func(v reflect.Type) {
		switch v.Kind() {
		case reflect.Slice, reflect.Pointer:
			walk(v.Elem())
			return
		case reflect.Struct:
		default:
			return
		}
		if _, ok := reflect.New(v).Interface().(encoding.TextUnmarshaler); !ok {
			for i := range v.NumField() {
				walk(v.Field(i).Type)
			}
			return
		}
		seen++
		if b, err := json.Marshal(reflect.New(v).Interface()); err != nil || string(b) == "{}" {
			t.Errorf("%v is logged as %s, %v: give it MarshalText", v, b, err)
		}
	}
	walk(reflect.TypeFor[Config]())
	if seen == 0 {
		t.Error("no value was checked")
	}
	var a Address
	if err := a.UnmarshalText([]byte(":7174")); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(map[string]Address{"listen": a})
	if err != nil || string(b) != `{"listen":":7174"}` {
		t.Errorf("%s, %v", b, err)
	}
}
