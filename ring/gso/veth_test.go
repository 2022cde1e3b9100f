package gso

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"xwarp/bench/topo"
	"xwarp/bpf"
	"xwarp/bpf/needs"
	"xwarp/ring"
	"xwarp/tcp/ip"
	"xwarp/tcp/wire"
)

// TestKernelCuts: with the offloads of the veth switched off, the kernel cuts blocks into the expected frames, byte for
// byte, with the expected identifications, sequence numbers, flags, lengths and checksums. So each segment starts where
// the writer of the block placed an FPDU.
func TestKernelCuts(t *testing.T) {
	needs.XSK(t)
	needs.NetNS(t)
	for _, mtu := range []int{1500, 3500, 9000} {
		net, err := topo.New(topo.Options{MTU: mtu, OffloadsA: topo.NoOffloads,
			OffloadsB: topo.NoOffloads})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { net.Close() })
		to := openPort(t, net.B, mtu, bpf.ModeAuto)
		p := openBlocks(t, net.A, mtu)
		for seed := range uint64(60) {
			r := rand.New(rand.NewPCG(seed, 2))
			ipv6 := seed%2 == 1
			size := mtu - ip.Len4 - wire.HeaderLen - 12
			if ipv6 {
				size -= ip.Len6 - ip.Len4
			}
			if r.IntN(2) == 0 {
				size = 512 + r.IntN(size-512)
			}
			block, s, want := draw(r, ipv6, size, 50)
			if err := equal(carry(t, p, to, block, s, want[0], len(want)+1),
				append(want, want[0])); err != nil {
				t.Fatalf("MTU %d, seed %d, %+v: %v", mtu, seed, s, err)
			}
		}
		if s := p.GSOStats(); s.Blocks != 60 || s.Single != 60 || s.Dropped > 0 {
			t.Errorf("%+v", s)
		}
	}
}

// TestVethDeliversBlocksWhole: with the default offloads of a veth and a generic program at the other end, a block is
// not cut. It arrives as one frame. Its IP checksum is correct, and its TCP checksum is the sum of the pseudo-header.
func TestVethDeliversBlocksWhole(t *testing.T) {
	needs.XSK(t)
	needs.NetNS(t)
	net, err := topo.New(topo.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { net.Close() })
	to := openPort(t, net.B, 1500, bpf.ModeGeneric)
	p := openBlocks(t, net.A, 1500)
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 3))
		block, s, cut := draw(r, seed%2 == 1, 1400, MaxBlock/1400-1)
		got := carry(t, p, to, block, s, cut[0], 2)
		var v [vnetHeader]byte
		s.describe(v[:], block)
		if err := equal(got, [][]byte{block, cut[0]}); err != nil {
			t.Fatalf("seed %d, %d bytes, %+v: %v", seed, len(block), s, err)
		}
		if h := block[s.IPAt:]; !s.IPv6 && !wire.Right(wire.Sum(h[:ip.Len4], 0)) {
			t.Fatalf("seed %d: the IP checksum is wrong", seed)
		}
	}
}

// openBlocks opens a Port on a host that accepts blocks.
func openBlocks(t *testing.T, h *topo.Host, mtu int) (p *Port) {
	from := openPort(t, h, mtu, bpf.ModeAuto)
	if err := h.Do(func() error {
		s, err := OpenSender(index(t, h))
		if err == nil {
			p = Wrap(from, s)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func index(t *testing.T, h *topo.Host) (i int) {
	nic, err := netlink.LinkByName(h.Link.Name)
	if err != nil {
		t.Fatal(err)
	}
	return nic.Attrs().Index
}

// openPort opens an AF_XDP socket of a host and steers the test's flows to it.
func openPort(t *testing.T, h *topo.Host, mtu int, mode bpf.Mode) (s *ring.Socket) {
	if err := h.Do(func() (err error) {
		link := index(t, h)
		if s, err = ring.Open(ring.Config{Ifindex: link, LargeFrames: mode == bpf.ModeGeneric,
			TxSlot: ring.SlotFor(mtu + ip.EthernetLen)}); err != nil {
			return err
		}
		s.Refill()
		steer, err := bpf.Load(bpf.Options{})
		if err != nil {
			return err
		}
		t.Cleanup(func() { steer.Close(); s.Close() })
		for _, pair := range [][2]netip.Addr{{netip.AddrFrom4(addrB4), netip.AddrFrom4(addrA4)},
			{netip.AddrFrom16(addrB6), netip.AddrFrom16(addrA6)}} {
			if err := steer.AddFlow(netip.AddrPortFrom(pair[0], 9), netip.AddrPortFrom(pair[1],
				7)); err != nil {
				return fmt.Errorf("flow: %w", err)
			}
		}
		if _, err = steer.Attach(link, mode); err != nil {
			return err
		}
		return errors.Join(steer.SetMAC(dstMAC), steer.SetSocket(0, s.Fd()))
	}); err != nil {
		t.Fatal(err)
	}
	return s
}

// carry sends a block and a frame, and returns the frames that arrive. It waits until they are n, for at most a minute.
func carry(t *testing.T, p *Port, to *ring.Socket, block []byte, s Shape, frame []byte,
	n int) (got [][]byte) {
	mem := p.Block()
	p.SendBlock(mem[:copy(mem, block)], ring.Shape(s))
	b, ok := p.AllocTx()
	if !ok {
		t.Fatal("no slot")
	}
	p.Send(b, copy(b.Data, frame))
	if st := p.Flush(); st != ring.StateOK {
		t.Fatalf("flush: %v", st)
	}
	p.Reap()
	batch := make([]ring.Packet, 64)
	for limit := time.Now().Add(time.Minute); len(got) < n && time.Now().Before(limit); {
		k := to.Recv(batch)
		for i := range k {
			got = append(got, batch[i].AppendTo(nil))
			to.Release(&batch[i])
		}
		to.Refill()
	}
	return got
}
