package ring

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
)

// fakeMembers opens a group on fake kernels, with the interface indexes 1 to n.
func fakeMembers(t *testing.T, n int) (*Group, []*FakeKernel) {
	t.Helper()
	g, kernels := NewGroup(), make([]*FakeKernel, n)
	for i := range n {
		kernels[i] = NewFakeKernel(FakeConfig{})
		addMember(t, g, kernels[i], i+1)
	}
	t.Cleanup(func() { g.Close() })
	return g, kernels
}

func addMember(t *testing.T, g *Group, k *FakeKernel, ifindex int) {
	t.Helper()
	s, err := OpenFake(Config{Ifindex: ifindex, RxFrames: 64, TxSlots: 16, LargeFrames: true}, k)
	if err == nil {
		err = g.Add(s)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// tcpFrame returns a frame with an IPv4 packet of TCP from the given source port.
func tcpFrame(port uint16) []byte {
	b := make([]byte, 60)
	copy(b, []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45})
	b[23] = protoTCP
	copy(b[26:], []byte{192, 0, 2, 1, 192, 0, 2, 2})
	binary.BigEndian.PutUint16(b[34:], port)
	binary.BigEndian.PutUint16(b[36:], 7174)
	return b
}

func sendFrame(t *testing.T, g *Group, b []byte) {
	t.Helper()
	buf, ok := g.AllocTx()
	if !ok {
		t.Fatal("no slot")
	}
	g.Send(buf, copy(buf.Data, b))
	g.Flush()
	g.Reap()
	if err := g.Audit(); err != nil {
		t.Fatal(err)
	}
}

// taken returns the number of frames that each kernel has sent since the last call.
func taken(kernels []*FakeKernel) (n []int) {
	for _, k := range kernels {
		count := 0
		for {
			if _, ok := k.Take(nil); !ok {
				break
			}
			count++
		}
		n = append(n, count)
	}
	return n
}

// TestGroupFailover: the group sends on the members that may send, however often they change, and loses no slot. Frames
// without such a member are dropped.
func TestGroupFailover(t *testing.T) {
	g, kernels := fakeMembers(t, 2)
	sendFrame(t, g, tcpFrame(1))
	if n := taken(kernels); !slices.Equal(n, []int{0, 0}) {
		t.Errorf("sent %v before Use", n)
	}
	for i := range 100 {
		g.Use(PolicyLayer34, []int{i%2 + 1})
		want := []int{0, 0}
		for range 5 {
			sendFrame(t, g, tcpFrame(uint16(i)))
			want[i%2]++
		}
		if n := taken(kernels); !slices.Equal(n, want) {
			t.Fatalf("round %d: sent %v, want %v", i, n, want)
		}
	}
	g.Use(PolicyLayer34, nil)
	sendFrame(t, g, tcpFrame(1))
	if n := taken(kernels); !slices.Equal(n, []int{0, 0}) || g.Stats().TxInvalid != 2 {
		t.Errorf("sent %v without a member, %d lost", n, g.Stats().TxInvalid)
	}
	if st := g.Stats(); st.TxPackets != 500 {
		t.Errorf("counted %d frames", st.TxPackets)
	}
}

// TestGroupSwitchesWhileWriting: if a member may no longer send when its slot is written, the other member sends the
// frame.
func TestGroupSwitchesWhileWriting(t *testing.T) {
	g, kernels := fakeMembers(t, 2)
	g.Use(PolicyLayer34, []int{1})
	buf, _ := g.AllocTx()
	frame := tcpFrame(9)
	n := copy(buf.Data, frame)
	g.Use(PolicyLayer34, []int{2})
	g.Send(buf, n)
	g.Flush()
	got, _ := kernels[1].Take(nil)
	if _, first := kernels[0].Take(nil); !bytes.Equal(got, frame) || first {
		t.Errorf("the second member sent % x, the first something: %t", got, first)
	}
	buf, _ = g.AllocTx()
	g.CancelTx(NewTxBuf(nil, buf.Slot())) // as a stack does after a panic
	if err := g.Audit(); err != nil || g.members[1].frames.count[OwnerTx] != 0 {
		t.Errorf("%v; census %v", err, g.members[1].Census())
	}
}

// TestGroupHashes: each flow stays on its member, and many flows use all.
func TestGroupHashes(t *testing.T) {
	g, kernels := fakeMembers(t, 3)
	g.Use(PolicyLayer34, []int{1, 2, 3})
	sum := []int{0, 0, 0}
	for port := range uint16(300) {
		for range 2 {
			sendFrame(t, g, tcpFrame(1024+port))
		}
		for i, n := range taken(kernels) {
			if sum[i] += n; n == 1 {
				t.Fatalf("port %d is on several members", port)
			}
		}
	}
	for i, n := range sum {
		if n < 100 {
			t.Errorf("member %d sent %d of 600 frames: %v", i, n, sum)
		}
	}
}

// TestGroupFullMember: a member without free slots does not stop the flows of the others.
func TestGroupFullMember(t *testing.T) {
	g, kernels := fakeMembers(t, 2)
	g.Use(PolicyLayer34, []int{1, 2})
	kernels[0].SetState(StateAgain)
	n := []int{0, 0}
	for port := range uint16(400) {
		if buf, ok := g.AllocTx(); ok {
			g.Send(buf, copy(buf.Data, tcpFrame(port)))
		}
		g.Flush()
		now := taken(kernels)
		n[0], n[1] = n[0]+now[0], n[1]+now[1]
	}
	if n[0] != 0 || n[1] < 150 {
		t.Errorf("sent %v", n)
	}
}

// TestGroupMembersChange: frames arrive on all members. A member that leaves while its frames are read is closed once
// they are released, and another may take its place.
func TestGroupMembersChange(t *testing.T) {
	g, kernels := fakeMembers(t, 2)
	g.Use(PolicyLayer34, []int{1, 2})
	batch := make([]Packet, 8)
	for i, k := range kernels {
		k.Inject(tcpFrame(uint16(i)))
	}
	if n := g.Recv(batch); n != 2 {
		t.Fatalf("received %d frames", n)
	}
	if s := g.Remove(1); s != nil {
		t.Fatal("the socket was closed under a reader")
	}
	for i := range 2 {
		if got := batch[i].AppendTo(nil); !bytes.Equal(got, tcpFrame(uint16(i))) {
			t.Errorf("frame %d is % x", i, got)
		}
		g.Release(&batch[i])
	}
	g.Refill()
	if g.members[0] != nil || g.position(1) >= 0 {
		t.Error("the removed member stays")
	}
	sendFrame(t, g, tcpFrame(1))
	addMember(t, g, kernels[0], 3)
	g.Use(PolicyLayer34, []int{3})
	sendFrame(t, g, tcpFrame(1))
	if n := taken(kernels); !slices.Equal(n, []int{1, 1}) {
		t.Errorf("sent %v", n)
	}
	for _, ifindex := range []int{2, 3} {
		if s := g.Remove(ifindex); s == nil || s.Close() != nil {
			t.Errorf("member %d was not returned", ifindex)
		}
	}
	sendFrame(t, g, tcpFrame(1))
	if g.Recv(batch) != 0 || g.Wait(0, -1) != 0 || g.Stats().RxPackets != 2 {
		t.Errorf("an empty group: %+v", g.Stats())
	}
}

// TestPolicyHash compares the hash of each policy with the kernel's formula, for a frame of IPv4 and of IPv6, with and
// without VLAN tag.
func TestPolicyHash(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, v6 := range []bool{false, true} {
		for _, tagged := range []bool{false, true} {
			b := tcpFrame(1)
			if v6 {
				b = slices.Concat(b[:12], []byte{0x86, 0xdd}, make([]byte, 60))
			}
			for i := range 12 {
				b[i] = byte(rng.Uint32())
			}
			ip := b[14:]
			from, to, at := ip[12:16], ip[16:20], 20
			if v6 {
				from, to, at, ip[6] = ip[8:24], ip[24:40], 40, protoTCP
			}
			for _, part := range [][]byte{from, to, ip[at : at+4]} {
				for i := range part {
					part[i] = byte(rng.Uint32())
				}
			}
			word := binary.NativeEndian.Uint32
			addrs := uint32(0)
			for _, a := range [][]byte{from, to} {
				for i := 0; i < len(a); i += 4 {
					addrs ^= word(a[i:])
				}
			}
			eth := uint32(b[5]) ^ uint32(b[11]) ^ uint32(binary.BigEndian.Uint16(b[12:]))
			fold := func(h uint32) uint32 { h ^= h >> 16; h ^= h >> 8; return h }
			l34 := fold(word(ip[at:])^addrs) >> 1
			l23 := fold(eth ^ addrs)
			vlan := uint32(0)
			if tagged {
				vlan = 0x123
				b = slices.Concat(b[:12], []byte{0x81, 0, 0x01, 0x23}, b[12:])
			}
			src := uint32(b[6])<<16 ^ uint32(b[7])<<8 ^ uint32(b[8]) ^
				uint32(b[9])<<16 ^ uint32(b[10])<<8 ^ uint32(b[11]) ^ vlan
			for p, want := range map[Policy]uint32{PolicyLayer2: eth, PolicyLayer23: l23,
				PolicyEncap23: l23, PolicyLayer34: l34, PolicyEncap34: l34, PolicyVLANSrcMAC: src} {
				if got := p.hash(b); got != want {
					t.Errorf("IPv6 %t, tagged %t, %v: %#x, want %#x", v6, tagged, p, got, want)
				}
			}
		}
	}
	for n := ethHeader; n < 60; n++ { // truncated frames
		PolicyLayer34.hash(tcpFrame(1)[:n])
	}
}
