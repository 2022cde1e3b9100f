package pcapng

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"testing"

	"github.com/google/gopacket/pcapgo"

	"xwarp/ring"
)

func open(t *testing.T) (*ring.Socket, *ring.FakeKernel) {
	t.Helper()
	k := ring.NewFakeKernel(ring.FakeConfig{})
	s, err := ring.OpenFake(ring.Config{RxFrames: 32, TxSlots: 8, TxSlot: 3}, k)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, k
}

func frame(n int, v byte) []byte { return bytes.Repeat([]byte{v}, n) }

// TestFileHoldsWhatPassed: recorded frames of two Ports are read back with the same bytes, time stamps and interfaces.
func TestFileHoldsWhatPassed(t *testing.T) {
	var out bytes.Buffer
	f := NewFile(&out)
	now := int64(1_700_000_000_000_000_123)
	clock := func() int64 { now++; return now }
	s1, k1 := open(t)
	s2, k2 := open(t)
	a, err := f.Wrap(s1, "a", Both, clock)
	if err != nil {
		t.Fatal(err)
	}
	b, err := f.Wrap(s2, "b", Rx, clock)
	if err != nil {
		t.Fatal(err)
	}
	var batch [4]ring.Packet
	send := func(p ring.Port, data []byte) {
		buf, _ := p.AllocTx()
		p.Send(buf, copy(buf.Data, data))
		if st := p.Flush(); st != ring.StateOK {
			t.Fatal(st)
		}
	}
	send(a, frame(9014, 1))
	k1.Inject(frame(60, 2))
	k1.Inject(frame(9000, 3))
	a.Recv(batch[:])
	send(b, frame(60, 4)) // not recorded
	k2.Inject(frame(61, 5))
	b.Recv(batch[2:])
	last := int64(1_700_000_000_000_000_999)
	if err := f.WriteStats(1, last, 7, 1<<40); err != nil {
		t.Error(err)
	}
	if err := f.Flush(); err != nil || f.Packets() != 4 {
		t.Fatalf("%v, %d packets", err, f.Packets())
	}
	if err := errors.Join(s1.Audit(), s2.Audit()); err != nil {
		t.Error(err)
	}

	r, err := pcapgo.NewNgReader(&out, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		data []byte
		id   int
	}{{frame(9014, 1), 0}, {frame(60, 2), 0}, {frame(9000, 3), 0}, {frame(61, 5), 1}} {
		data, ci, err := r.ReadPacketData()
		if err != nil {
			t.Fatal(err)
		}
		at := int64(1_700_000_000_000_000_124) + int64(i)
		if !bytes.Equal(data, want.data) || ci.InterfaceIndex != want.id ||
			ci.Timestamp.UnixNano() != at {
			t.Errorf("packet %d: %d bytes, interface %d at %d, want %d, %d at %d", i, len(data),
				ci.InterfaceIndex, ci.Timestamp.UnixNano(), len(want.data), want.id, at)
		}
	}
	if _, _, err := r.ReadPacketData(); err != io.EOF {
		t.Errorf("after the last packet: %v", err)
	}
	i, err := r.Interface(1)
	if err != nil || i.Name != "b" || i.OS != runtime.GOOS {
		t.Errorf("interface 1 is %q of %q, %v", i.Name, i.OS, err)
	}
	if s := i.Statistics; s.PacketsReceived != 7 || s.PacketsDropped != 1<<40 ||
		s.LastUpdate.UnixNano() != last || s.EndTime.UnixNano() != last {
		t.Errorf("its statistics are %+v", s)
	}
	if s := r.SectionInfo(); s.Application != "xwarp" {
		t.Errorf("the file is by %q", s.Application)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// A write error, as of a full disk, stops the recording, not the traffic, and Close returns the error.
func TestBrokenWriter(t *testing.T) {
	f := NewFile(broken{})
	s, k := open(t)
	p, err := f.Wrap(s, "a", Both, func() int64 { return 0 })
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		k.Inject(frame(3000, 1))
		var batch [1]ring.Packet
		if p.Recv(batch[:]) != 1 {
			t.Fatal("traffic stopped")
		}
		p.Release(&batch[0])
		p.Refill()
	}
	if err := p.Close(); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("Close: %v", err)
	}
}
