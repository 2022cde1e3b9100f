package dispatcher

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"xwarp/bpf/needs"
)

func TestConfig(t *testing.T) {
	for _, c := range []config{
		{version: 2, slots: []slot{{1<<2 | 1<<31, 10, 0}}},
		{version: 3, frags: true, slots: []slot{{1 << 31, 7, 32}, {1<<1 | 1<<31, 50, 32}}},
	} {
		b := c.encode()
		if want := map[byte]int{2: 124, 3: 128}[c.version]; len(b) != want {
			t.Errorf("version %d has %d bytes, libxdp wants %d", c.version, len(b), want)
		}
		got, err := decode("eth0", b)
		if err != nil || !reflect.DeepEqual(got, c) {
			t.Errorf("%+v became %+v: %v", c, got, err)
		}
	}
	bound := (&config{version: 3}).encode()
	bound[124] = 1
	if c, err := decode("eth0", bound); err != nil || !c.bound {
		t.Errorf("bound to a device: %+v %v", c, err)
	}
	full := (&config{version: 2}).encode()
	full[2] = 11
	for name, c := range map[string]struct {
		b    []byte
		says string
	}{
		"newer":    {[]byte{236, 4, 0, 0}, "version 4, and xwarp knows 2 to 3"},
		"older":    {make([]byte, 84), "libxdp 1.3 or newer"}, // without magic
		"empty":    {nil, "version 1"},
		"short":    {[]byte{236, 2}, "2 bytes is invalid"},
		"too many": {full, "124 bytes is invalid"},
	} {
		_, err := decode("eth0", c.b)
		if err == nil || !strings.Contains(err.Error(), c.says) ||
			!strings.Contains(err.Error(), "xdp-loader unload eth0 --all") {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := decode("eth0", []byte{236, 4})
	if v, ok := errors.AsType[*VersionError](err); !ok || v.Version != 4 {
		t.Errorf("%v", err)
	}
}

func TestOrder(t *testing.T) {
	members := []Member{{Name: "b", Priority: 50}, {Name: "c", Priority: 10},
		{Name: "a", Priority: 50}, {Name: "b", Priority: 50, ID: 2}}
	order(members)
	var got string
	for _, m := range members {
		got += m.String() + " "
	}
	if got != "c (priority 10) a (priority 50) b (priority 50) b (priority 50) " ||
		members[3].ID != 2 {
		t.Error(got, members[3].ID)
	}
}

// TestHaveFrags: the dispatcher accepts frames of several buffers if all members do.
func TestHaveFrags(t *testing.T) {
	several, one := Member{flags: unix.BPF_F_XDP_HAS_FRAGS}, Member{}
	for _, c := range []struct {
		members []Member
		want    bool
	}{{nil, true}, {[]Member{several, several}, true}, {[]Member{several, one}, false},
		{[]Member{one, several}, false}} {
		if got := haveFrags(c.members); got != c.want {
			t.Errorf("%v: %t", c.members, got)
		}
	}
}

// TestEmptySlots: after a function without a program, the dispatcher continues with the next one. If no function has a
// program, the result is XDP_PASS.
func TestEmptySlots(t *testing.T) {
	needs.XDP(t)
	s := &State{config: config{version: 3}}
	for _, c := range []struct {
		actions []uint32
		want    uint32
	}{
		{[]uint32{actionNone}, 2}, {[]uint32{actionNone, actionNone, actionNone}, 2},
		{[]uint32{actionNone, actionPass}, 31}, // a member without actionNone ends the chain
	} {
		s.config.slots = nil
		for _, a := range c.actions {
			s.config.slots = append(s.config.slots, slot{actions: a})
		}
		prog, err := s.loadEmpty(s.config)
		if err != nil {
			t.Fatal(err)
		}
		got, err := prog.Run(&ebpf.RunOptions{Data: make([]byte, 64)})
		prog.Close()
		if err != nil || got != c.want {
			t.Errorf("%v: action %d, want %d (%v)", c.actions, got, c.want, err)
		}
	}
}
