package nldev

import (
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"xwarp/engine/daemon/control"
)

// ask returns an encoded request.
func ask(kind, flags uint16, attrs ...[]byte) []byte {
	var w writer
	w.add(&unix.NlMsghdr{Seq: 7, Pid: 9}, kind, flags|unix.NLM_F_REQUEST, join(attrs...))
	return w.datagrams[0]
}

func nldev(command uint16) uint16 { return clientNLDev<<clientShift | command }

// snapshot returns a function for Answer, which returns a snapshot with n regions.
func snapshot(n int) func() (*control.Snapshot, error) {
	s := &control.Snapshot{}
	for i := range n {
		s.MRs = append(s.MRs, control.MRState{DeviceRef: control.DeviceRef{Device: "eth0"},
			Owner:  control.Owner{Pid: 3},
			Handle: control.Handle(i + 1), Length: 4096})
	}
	return func() (*control.Snapshot, error) { return s, nil }
}

var devices = []Device{{Name: "xwarp_eth0", Netdev: "eth0", Protocol: "iw"}}

func TestErrors(t *testing.T) {
	dump := uint16(unix.NLM_F_DUMP)
	short := ask(nldev(cmdGet), dump)
	binary.NativeEndian.PutUint32(short, 200)
	for _, c := range []struct {
		name string
		b    []byte
		want unix.Errno
	}{
		{"nothing", nil, unix.EINVAL},
		{"half a header", short[:8], unix.EINVAL},
		{"longer than the datagram", short, unix.EINVAL},
		{"attribute without length", ask(nldev(cmdResMR), dump, make([]byte, 4)), unix.EINVAL},
		{"attribute beyond the end", ask(nldev(cmdGet), dump, []byte{9, 0, 1, 0}), unix.EINVAL},
		{"another client", ask(2<<clientShift|cmdGet, dump), unix.EOPNOTSUPP},
		{"no device", ask(nldev(cmdResMR), dump), unix.EINVAL},
		{"unknown device", ask(nldev(cmdResMR), dump, u32(devIndex, 1)), unix.EINVAL},
		{"unknown port", ask(nldev(cmdPortGet), 0, u32(devIndex, 0), u32(portIndex, 2)),
			unix.EINVAL},
		{"unknown region", ask(nldev(cmdResMR), 0, u32(devIndex, 0), u32(resMRN, 4)), unix.ENOENT},
		{"set", ask(nldev(2), unix.NLM_F_ACK, u32(devIndex, 0)), unix.EOPNOTSUPP},
	} {
		list, err := Answer(c.b, devices, snapshot(3))
		if !errors.Is(err, c.want) || list != nil {
			t.Errorf("%s: %x, %v, want %v", c.name, list, err, c.want)
		}
	}
}

// TestDatagrams checks the messages of a long reply: their headers, and that no datagram exceeds the buffer of libmnl.
func TestDatagrams(t *testing.T) {
	const n = 1000
	b := ask(nldev(cmdResMR), unix.NLM_F_DUMP, u32(devIndex, 0))
	list, err := Answer(b, devices, snapshot(n))
	if err != nil {
		t.Fatal(err)
	}
	messages, last := 0, uint16(0)
	for _, d := range list {
		if len(d) > maxDatagram {
			t.Fatalf("a datagram of %d bytes", len(d))
		}
		for len(d) > 0 {
			var h unix.NlMsghdr
			_, err := binary.Decode(d, binary.NativeEndian, &h)
			if err != nil || int(h.Len) > len(d) {
				t.Fatal(err, h)
			}
			if h.Seq != 7 || h.Pid != 9 || h.Flags != unix.NLM_F_MULTI {
				t.Fatalf("header %+v", h)
			}
			messages, last = messages+1, h.Type
			d = d[align(int(h.Len)):]
		}
	}
	if messages != n+1 || last != unix.NLMSG_DONE {
		t.Errorf("%d messages, the last has type %d", messages, last)
	}
}

func FuzzAnswer(f *testing.F) {
	for _, k := range append(kinds, kind{command: cmdGet}, kind{command: cmdStatGet}) {
		for _, flags := range []uint16{0, unix.NLM_F_DUMP, unix.NLM_F_ACK} {
			f.Add(ask(nldev(k.command), flags, u32(devIndex, 0), u32(portIndex, 1), u32(k.id, 2)))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if list, err := Answer(b, devices, snapshot(3)); err == nil && len(list) == 0 &&
			binary.NativeEndian.Uint16(b[6:])&unix.NLM_F_DUMP != 0 {
			t.Error("a dump without an end")
		}
	})
}
