package ring

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"xwarp/bpf/needs"
)

// TestBind opens sockets on drivers of all kinds. It checks which binds are tried, which one succeeds, and what is
// reported about zero-copy.
func TestBind(t *testing.T) {
	const direct, directSG, copied = "zero-copy", "zero-copy segments", "copy segments"
	oneChunk := &Driver{Name: "virtio_net", Native: true, ZeroCopy: true, Segments: 1}
	segments := &Driver{Name: "ice", Native: true, ZeroCopy: true, Segments: 8} // ice, i40e
	for _, c := range []struct {
		name   string
		mode   Mode
		mtu    int
		driver *Driver
		refuse map[string]unix.Errno
		tried  []string
		had    string
		why    string // of NoZeroCopy, or of the error if no bind succeeds
	}{
		{name: "one chunk each", mtu: 1500, driver: oneChunk,
			refuse: map[string]unix.Errno{directSG: unix.EOPNOTSUPP}, tried: []string{direct},
			had: direct},
		{name: "largest one chunk", mtu: 3818, driver: oneChunk, tried: []string{direct},
			had: direct},
		{name: "one chunk is too small", mtu: 3819, driver: oneChunk, tried: []string{copied},
			had: copied, why: "at most 3818, and the MTU is 3819"},
		{name: "jumbo", mtu: 9000, driver: segments, tried: []string{directSG}, had: directSG},
		{name: "no need of segments", mtu: 1500, driver: segments, tried: []string{direct},
			had: direct},
		{name: "zero-copy is faulty", mtu: 1500,
			driver: &Driver{Name: "igb", Native: true, ZeroCopy: true, Segments: 1},
			tried:  []string{copied}, had: copied, why: "zero-copy is not safe: igb"},
		{name: "zero-copy is faulty, and asked for", mode: ModeZeroCopy, mtu: 1500,
			driver: &Driver{Name: "igb", Native: true, ZeroCopy: true, Segments: 1},
			tried:  []string{direct}, had: direct},
		{name: "driver copies", mtu: 1500, driver: &Driver{Native: true}, tried: []string{copied},
			had: copied, why: "the driver has no zero-copy mode"},
		{name: "driver copies, zero-copy asked for", mode: ModeZeroCopy, mtu: 1500,
			driver: &Driver{Native: true}, why: "the driver has no zero-copy mode"},
		{name: "jumbo, zero-copy asked for", mode: ModeZeroCopy, mtu: 9000, driver: oneChunk,
			why: "one chunk per frame"},
		{name: "nobody tells", mtu: 1500, refuse: map[string]unix.Errno{direct: unix.EOPNOTSUPP},
			tried: []string{direct, copied}, had: copied, why: "does not report"},
		{name: "nobody tells, jumbo", mtu: 9000,
			refuse: map[string]unix.Errno{directSG: unix.EOPNOTSUPP}, tried: []string{directSG,
				copied}, had: copied, why: "or none for an MTU of 9000"},
		{name: "nobody tells, and it works", mtu: 1500, tried: []string{direct}, had: direct},
		{name: "it says so and refuses", mtu: 1500, driver: oneChunk,
			refuse: map[string]unix.Errno{direct: unix.EINVAL}, tried: []string{direct, copied},
			had: copied, why: "present settings"},
		{name: "it says so and refuses, zero-copy asked for", mode: ModeZeroCopy, mtu: 1500,
			driver: oneChunk,
			refuse: map[string]unix.Errno{direct: unix.EOPNOTSUPP}, tried: []string{direct},
			why: "present settings"},
		{name: "no memory", mtu: 1500, driver: oneChunk,
			refuse: map[string]unix.Errno{direct: unix.ENOMEM}, tried: []string{direct, copied},
			had: copied, why: "no memory"},
		{name: "busy", mtu: 1500, driver: oneChunk,
			refuse: map[string]unix.Errno{direct: unix.EBUSY}, tried: []string{direct},
			why: "busy"},
		{name: "copy asked for", mode: ModeCopy, mtu: 1500, driver: oneChunk,
			tried: []string{copied}, had: copied},
	} {
		t.Run(c.name, func(t *testing.T) {
			var tried []string
			name := func(zeroCopy, segments bool) string {
				switch {
				case zeroCopy && segments:
					return directSG
				case zeroCopy:
					return direct
				}
				return copied
			}
			k := NewFakeKernel(FakeConfig{MTU: c.mtu, Driver: c.driver,
				Refuse: func(zeroCopy, segments bool) unix.Errno {
					tried = append(tried, name(zeroCopy, segments))
					return c.refuse[tried[len(tried)-1]]
				}})
			s, err := OpenFake(Config{Mode: c.mode, TxSlot: SlotFor(c.mtu + vlanHeader)}, k)
			if !slices.Equal(tried, c.tried) {
				t.Errorf("binds %q, want %q", tried, c.tried)
			}
			if err == nil {
				defer s.Close()
				i := s.Info()
				if got := name(i.ZeroCopy, i.Segments > 1); got != c.had {
					t.Errorf("had %q, want %q", got, c.had)
				}
				if i.RxRoom < c.mtu+ethHeader {
					t.Errorf("room for frames of %d bytes at MTU %d", i.RxRoom, c.mtu)
				}
				if got := i.Fault != nil; got != (c.driver != nil && c.driver.Name == "igb" &&
					i.ZeroCopy) {
					t.Errorf("fault: %v", i.Fault)
				}
				err = i.NoZeroCopy
			} else if c.had != "" {
				t.Fatal(err)
			}
			if (err != nil) != (c.why != "") || err != nil &&
				!strings.Contains(err.Error(), c.why) {
				t.Errorf("says %v, want %q", err, c.why)
			}
		})
	}
}

// TestBindFlags: a driver of one chunk per frame refuses XDP_USE_SG together with zero-copy.
func TestBindFlags(t *testing.T) {
	for _, c := range []struct {
		b    binding
		want uint16
	}{
		{binding{zeroCopy: true}, unix.XDP_USE_NEED_WAKEUP | unix.XDP_ZEROCOPY},
		{binding{zeroCopy: true, segments: true}, unix.XDP_USE_NEED_WAKEUP | unix.XDP_ZEROCOPY |
			unix.XDP_USE_SG},
		{binding{segments: true}, unix.XDP_USE_NEED_WAKEUP | unix.XDP_COPY | unix.XDP_USE_SG},
	} {
		if got := c.b.flags(); got != c.want {
			t.Errorf("%+v: flags %#x, want %#x", c.b, got, c.want)
		}
	}
}

// TestAskDriver queries a veth, whose driver supports multi-buffer programs, but not zero-copy. It repeats the query,
// since a header with uninitialized bytes would sometimes succeed.
func TestAskDriver(t *testing.T) {
	a, _ := newPair(t, 1500)
	a.in(t, func() error {
		for range 100 {
			d, err := QueryDriver(a.index)
			if err != nil || d != (Driver{Name: "veth", Native: true, RxSegments: true}) {
				t.Errorf("veth: %+v, %v", d, err)
				break
			}
		}
		if n, err := ReceiveQueues(a.index, 9); err != nil || n != 2 {
			t.Errorf("%d receive queues, %v, want 2", n, err)
		}
		if n, err := ReceiveQueues(a.index, 1); err != nil || n != 1 {
			t.Errorf("%d receive queues of at most 1, %v", n, err)
		}
		if _, err := QueryDriver(4242); !errors.Is(err, unix.ENODEV) {
			t.Errorf("no such device: %v", err)
		}
		return nil
	})
}

// TestParseDriver parses the reply of an igb.
func TestParseDriver(t *testing.T) {
	value := func(kind uint16, v []byte) syscall.NetlinkRouteAttr {
		return syscall.NetlinkRouteAttr{Attr: syscall.RtAttr{Type: kind}, Value: v}
	}
	reply := []syscall.NetlinkRouteAttr{
		value(netdevIfindex, []byte{2, 0, 0, 0}),
		value(netdevXDPFeatures, binary.NativeEndian.AppendUint64(nil, netdevBasic|netdevZeroCopy)),
		value(netdevMaxSegments, binary.NativeEndian.AppendUint32(nil, 1)),
	}
	if got, want := parseDriver(reply),
		(Driver{Native: true, ZeroCopy: true, Segments: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for i := range reply {
		reply[i].Value = reply[i].Value[:1]
	}
	if got := parseDriver(reply); got != (Driver{}) {
		t.Errorf("values of one byte are parsed as %+v", got)
	}
	if h := (genlHeader{netdevDevGet, 1}); h.Len() != 4 ||
		!slices.Equal(h.Serialize(), []byte{netdevDevGet, 1, 0, 0}) {
		t.Errorf("header % x", h.Serialize())
	}
}

// TestFillBeforeBind: a zero-copy driver takes chunks of the fill ring in bind(2). An igb with separate interrupts for
// receive and transmit queues never received on a queue that started without chunks.
func TestFillBeforeBind(t *testing.T) {
	needs.XSK(t)
	c, err := Config{Ifindex: 1}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := c.NewSocket()
	if err != nil {
		t.Fatal(err)
	}
	k := &linux{fd: fd}
	defer k.close()
	s, err := k.prepare(c, binding{})
	if err != nil {
		t.Fatal(err)
	}
	if n := s.fill.used(); n != c.RxFrames {
		t.Errorf("%d chunks in the fill ring of an unbound socket, want %d", n, c.RxFrames)
	}
}
