package ring

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// TestNAPISettings compares QueryNAPI and SetNAPI with the device settings in sysfs, which the kernel applies to each
// NAPI instance, and with the kernel's own limits.
func TestNAPISettings(t *testing.T) {
	a, _ := newPair(t, 1500)
	a.attach(t) // a veth has NAPI instances only while it has a program
	dir := t.TempDir()
	a.in(t, func() error {
		nic, err := netlink.LinkByIndex(a.index)
		if err != nil {
			return err
		}
		if err := mountSysfs(dir); err != nil {
			return err
		}
		defer unix.Unmount(dir, unix.MNT_DETACH)
		for name, value := range map[string]string{"napi_defer_hard_irqs": "7",
			"gro_flush_timeout": "5000000001"} {
			file := filepath.Join(dir, "class/net", nic.Attrs().Name, name)
			if err := os.WriteFile(file, []byte(value), 0); err != nil {
				return err
			}
		}
		list := instances(t, a.index)
		if len(list) == 0 {
			t.Fatal("the kernel lists no NAPI instance of the veth")
		}
		id := list[0]
		want := NAPI{ID: id, DeferHardIRQs: 7, GROFlushTimeout: 5000000001}
		if got, err := QueryNAPI(id); err != nil || got != want {
			t.Errorf("after writing the device's files: %+v, %v, want %+v", got, err, want)
		}
		want = NAPI{id, 2, 200000, 1 << 33}
		if err := SetNAPI(want); err != nil {
			t.Error(err)
		}
		if got, err := QueryNAPI(id); err != nil || got != want {
			t.Errorf("after SetNAPI: %+v, %v, want %+v", got, err, want)
		}
		if err := SetNAPI(NAPI{ID: id, DeferHardIRQs: 1 << 31}); !errors.Is(err, unix.ERANGE) {
			t.Errorf("more deferrals than Linux takes: %v", err)
		}
		if _, err := QueryNAPI(1 << 30); !errors.Is(err, unix.ENOENT) {
			t.Errorf("no such NAPI instance: %v", err)
		}
		if err := SetNAPI(NAPI{ID: 1 << 30}); !errors.Is(err, unix.ENOENT) {
			t.Errorf("setting no such NAPI instance: %v", err)
		}
		// The driver of a veth does not report which instance polls a queue.
		if id, err := QueueNAPI(a.index, 0); err != nil || id != 0 {
			t.Errorf("NAPI instance of the queue of a veth: %d, %v", id, err)
		}
		return nil
	})
	if id := a.open(t, Config{}).NAPI(); id != 0 {
		t.Errorf("NAPI instance of a socket on a veth: %d", id)
	}
}

// mountSysfs mounts the sysfs of the thread's network namespace, for this thread only.
func mountSysfs(dir string) error {
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return unix.Mount("sysfs", dir, "sysfs", 0, "")
}

// instances returns the IDs of the NAPI instances of a device.
func instances(t *testing.T, ifindex int) (ids []uint32) {
	t.Helper()
	family, err := netdevFamily()
	if err != nil {
		t.Fatal(err)
	}
	req := nl.NewNetlinkRequest(family, unix.NLM_F_DUMP)
	req.AddData(genlHeader{netdevNAPIGet, 1})
	const netdevNAPIIfindex = 1
	req.AddData(nl.NewRtAttr(netdevNAPIIfindex, nl.Uint32Attr(uint32(ifindex))))
	replies, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range replies {
		attrs, err := nl.ParseRouteAttr(r[nl.SizeofGenlmsg:])
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, uint32(findNumber(attrs, netdevNAPIID)))
	}
	return ids
}

// TestBusyPollReceives: a busy-polling socket receives frames that arrive while it sleeps, and still prefers busy
// polling afterwards. A veth does not report its NAPI instance to the socket, so polls find nothing and interrupts
// receive.
func TestBusyPollReceives(t *testing.T) {
	a, b := newPair(t, 1500)
	a.attach(t)
	b.attach(t)
	from, to := a.open(t, Config{}), b.open(t, Config{})
	if err := to.BusyPoll(2); err != nil {
		t.Fatal(err)
	}
	batch := make([]Packet, 4)
	for i := range uint32(20) {
		transmit(t, from, newFrame(100, i))
		from.Flush()
		if to.Wait(-1, -1)&ReadyRx == 0 {
			t.Fatalf("frame %d does not end the sleep", i)
		}
		own := 0
		for n := to.Recv(batch); n > 0; n = to.Recv(batch) { // the kernel sends frames too
			for k := range batch[:n] {
				if bytes.Equal(batch[k].Frag(0), newFrame(100, i)) {
					own++
				}
				to.Release(&batch[k])
			}
			to.Refill()
		}
		if own != 1 {
			t.Fatalf("frame %d arrived %d times", i, own)
		}
		from.Reap()
	}
	if n := to.Stats().Polls; n < 20 {
		t.Errorf("%d polls", n)
	}
	if v, _ := unix.GetsockoptInt(to.Fd(), unix.SOL_SOCKET, unix.SO_PREFER_BUSY_POLL); v != 1 {
		t.Error("the sleep ended the preference for busy polling")
	}
}
