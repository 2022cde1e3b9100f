package ring

import (
	"bytes"
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
		old    bool // Linux without the fix of errTailroom
		driver *Driver
		refuse map[string]unix.Errno
		tried  []string
		had    string
		why    string // of NoZeroCopy, or of the error if no bind succeeds
	}{
		{name: "one chunk each", mtu: 1500, driver: oneChunk,
			refuse: map[string]unix.Errno{directSG: unix.EOPNOTSUPP}, tried: []string{direct},
			had: direct},
		{name: "largest one chunk", mtu: 3814, driver: oneChunk, tried: []string{direct},
			had: direct},
		{name: "one chunk is too small", mtu: 3815, driver: oneChunk, tried: []string{copied},
			had: copied, why: "at most 3814, and the MTU is 3815"},
		{name: "smallest two chunks", mtu: 3815, driver: segments,
			tried: []string{direct, directSG}, had: directSG},
		{name: "jumbo", mtu: 9000, driver: segments, tried: []string{direct, directSG},
			had: directSG},
		{name: "largest two chunks", mtu: 6886,
			driver: &Driver{Name: "new", Native: true, ZeroCopy: true, Segments: 2},
			tried:  []string{direct, directSG}, had: directSG},
		{name: "two chunks are too small", mtu: 6887,
			driver: &Driver{Name: "new", Native: true, ZeroCopy: true, Segments: 2},
			tried:  []string{direct, directSG, copied}, had: copied,
			why: "2 chunks per frame, so an MTU of at most 6886, and the MTU is 6887"},
		{name: "jumbo, old", mtu: 9000, old: true, driver: segments,
			tried: []string{direct, copied}, had: copied,
			why: "lower the MTU to 3814, or install a kernel with the fix of April 2026 (Linux 6.12"},
		{name: "jumbo, old, zero-copy asked for", mode: ModeZeroCopy, mtu: 9000, old: true,
			driver: segments, tried: []string{direct, directSG}, had: directSG},
		{name: "one chunk, old", mtu: 3814, old: true, driver: segments, tried: []string{direct},
			had: direct},
		{name: "jumbo, busy", mtu: 9000, driver: segments,
			refuse: map[string]unix.Errno{direct: unix.EBUSY}, tried: []string{direct},
			why: "busy"},
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
			refuse: map[string]unix.Errno{direct: unix.EOPNOTSUPP, directSG: unix.EOPNOTSUPP},
			tried:  []string{direct, copied}, had: copied, why: "or none for an MTU of 9000"},
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
			k := NewFakeKernel(FakeConfig{MTU: c.mtu, Driver: c.driver, NoTailroom: c.old,
				Refuse: func(zeroCopy, segments bool) unix.Errno {
					tried = append(tried, name(zeroCopy, segments))
					return c.refuse[tried[len(tried)-1]]
				}})
			s, err := OpenFake(Config{Mode: c.mode, TxSlot: SlotFor(c.mtu + longestHeader)}, k)
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
				if got := i.Fault != nil; got != (i.ZeroCopy &&
					(c.driver != nil && c.driver.Name == "igb" || c.old && i.Segments > 1)) {
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

// TestJumboFramesArriveWhole receives frames of lengths up to an MTU of 9000. Old kernels do not reserve room for
// struct skb_shared_info in zero-copy chunks. Frames are corrupt only on an old kernel with ModeZeroCopy, and only
// those of several chunks.
func TestJumboFramesArriveWhole(t *testing.T) {
	for _, c := range []struct {
		name string
		mode Mode
		old  bool
	}{
		{"auto", ModeAuto, false}, {"zero-copy", ModeZeroCopy, false}, {"copy", ModeCopy, false},
		{"auto, old", ModeAuto, true}, {"zero-copy, old", ModeZeroCopy, true},
		{"copy, old", ModeCopy, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, k := fake(t, Config{Mode: c.mode, RxFrames: 16, TxSlots: 1}, FakeConfig{MTU: 9000,
				NoTailroom: c.old, Driver: &Driver{Native: true, ZeroCopy: true, Segments: 8},
				Refuse: func(bool, bool) unix.Errno { return 0 }})
			for n := 60; n <= 9000+ethHeader; n += 37 {
				want := newFrame(n, uint32(n))
				if !k.Inject(want) {
					t.Fatalf("frame of %d bytes is dropped: %+v", n, k.FakeStats())
				}
				var p [1]Packet
				if s.Recv(p[:]) != 1 {
					t.Fatalf("frame of %d bytes: not received", n)
				}
				var got []byte
				for i := range p[0].NumFrags() {
					got = append(got, p[0].Frag(i)...)
				}
				s.Release(&p[0])
				s.Refill()
				bad := c.old && s.Info().ZeroCopy && n > RxChunkData
				if bytes.Equal(got, want) == bad {
					t.Fatalf("frame of %d bytes: equal %v", n, !bad)
				}
			}
		})
	}
}

// TestBindFlags: XDP_USE_SG is set only with segments. A driver that supports one chunk per frame refuses it with
// zero-copy.
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

// TestAskDriver queries a veth, whose driver supports multi-buffer programs, but not zero-copy, and its receive queues.
// It repeats the first query, because a request header with uninitialized bytes would fail only sometimes.
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

// TestParseDriver parses the kernel's reply for an igb.
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

// TestFillBeforeBind: the fill ring is full before bind(2), in which a zero-copy driver takes chunks from it. An igb
// with separate interrupts for receive and transmit queues never receives on a queue that starts without chunks.
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
