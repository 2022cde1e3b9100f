package config

import (
	"testing"
)

const ipsecHead = "[[interface]]\nname = \"eth0\"\n[[interface.ipsec]]\n"

func TestIPsecErrors(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"no if_id", ipsecHead, "interface[0].ipsec[0].if_id is missing: choose a number such as 0x7877"},
		{"level", ipsecHead + "level = \"requires\"\n",
			`interface[0].ipsec[0].level = "requires": must be one of require, off: did you mean "require"?`},
		{"mode", ipsecHead + "if_id = 1\nmode = \"beet\"\n", "must be one of transport, tunnel"},
		{"port", ipsecHead + "if_id = 1\nports = [0]\n", "has the invalid port 0"},
		{"port beyond 16 bits", ipsecHead + "if_id = 1\nports = [65536]\n", "65536"},
		{"negative if_id", ipsecHead + "if_id = -1\n", "-1"},
		{"window", ipsecHead + "if_id = 1\nwindow = 8\n",
			"interface[0].ipsec.window = 8: must be 32 to"},
		{"unknown key", ipsecHead + "if_i = 1\n",
			`:4: unknown key "interface.ipsec.if_i": did you mean "interface.ipsec.if_id"?`},
		{"kernel", "[[interface]]\nname = \"x\"\ntransport = \"kernel\"\n" +
			"[[interface.ipsec]]\nif_id = 1\n",
			`interface[0].ipsec needs transport = "xdp"`},
		{"two numbers", ipsecHead + "if_id = 1\nports = [7]\n[[interface.ipsec]]\nif_id = 2\n",
			"interface[0].ipsec[1]: if_id, mark and window differ from an earlier table"},
		{"never reached", ipsecHead + "if_id = 1\n[[interface.ipsec]]\nlevel = \"off\"\n",
			"interface[0].ipsec[1] is never used: interface[0].ipsec[0] matches all peers and ports"},
		{"one number for two interfaces", ipsecHead + "if_id = 7\n[[interface]]\n" +
			"name = \"eth1\"\n[[interface.ipsec]]\nif_id = 7\n",
			"interface[1].ipsec.if_id = 0x7: interface[0] uses the same"},
		{"one pair of brackets", "[[interface]]\nname = \"eth0\"\n[interface.ipsec]\nif_id = 7\n",
			"write [["},
	} {
		t.Run(tc.name, func(t *testing.T) { loadFails(t, tc.text, tc.want) })
	}
}

func TestIPsecTables(t *testing.T) {
	path := write(t, "[[interface]]\nname = \"eth0\"\n"+
		"[[interface.ipsec]]\nremote = [\"192.0.2.7/32\"]\nlevel = \"off\"\n"+
		"[[interface.ipsec]]\nports = [4791]\nif_id = 0x7877\nmode = \"tunnel\"\n"+
		"[[interface.ipsec]]\n")
	l, err := Load(Source{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	n := &l.Interface[0]
	p := n.Protection()
	if p != &n.IPsec[1] || p.IfID != 0x7877 || p.Mark != 0x7877 || p.Window != 1024 {
		t.Errorf("%+v", p)
	}
	last := n.IPsec[2]
	if last.IfID != 0x7877 || last.Mode != ModeTransport || last.Window != 1024 {
		t.Errorf("%+v", last)
	}
	values := map[string]Value{}
	for _, v := range l.Values() {
		values[v.Key] = v
	}
	for key, want := range map[string]Value{
		"interface[0].ipsec[1].ports":  {Value: "[4791]", Origin: Origin(path), Reload: true},
		"interface[0].ipsec[1].mode":   {Value: `"tunnel"`, Origin: Origin(path), Reload: true},
		"interface[0].ipsec[2].if_id":  {Value: "0x7877", Origin: OriginDefault},
		"interface[0].ipsec[2].window": {Value: "1024", Origin: OriginDefault},
	} {
		if want.Key = key; values[key] != want {
			t.Errorf("%+v, want %+v", values[key], want)
		}
	}
	for text, restart := range map[string]int{
		"":                                 1, // without IPsec the device must be opened again
		"[[interface.ipsec]]\nif_id = 8\n": 1,
		"[[interface.ipsec]]\nif_id = 0x7877\nremote = [\"::/0\"]\n": 0,
	} {
		now, err := Load(Source{Path: write(t, "[[interface]]\nname = \"eth0\"\n"+text)})
		if err != nil {
			t.Fatal(err)
		}
		if got := l.KeysNeedingRestart(now); len(got) != restart {
			t.Errorf("%q: a restart is needed for %v", text, got)
		}
	}
}
