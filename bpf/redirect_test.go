package bpf

import (
	"bytes"
	"testing"

	"github.com/asavie/xdp"
	"github.com/google/gopacket"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"xwarp/bpf/needs"
)

// receiver is an AF_XDP socket of an independent implementation, bound to queue 0 of the host's interface.
type receiver struct {
	*lab
	*xdp.Socket
}

func (l *lab) receiver() receiver {
	l.t.Helper()
	needs.XSK(l.t)
	was := xdp.DefaultSocketFlags
	xdp.DefaultSocketFlags = unix.XDP_USE_SG
	defer func() { xdp.DefaultSocketFlags = was }()
	s, err := xdp.NewSocket(l.ifindex(), 0, &xdp.SocketOptions{NumFrames: 256, FrameSize: 4096,
		FillRingNumDescs: 128, CompletionRingNumDescs: 64, RxRingNumDescs: 128, TxRingNumDescs: 64})
	l.must(err)
	l.t.Cleanup(func() { s.Close() })
	s.Fill(s.GetDescs(128))
	return receiver{l, s}
}

// next returns the next frame, which should have size bytes. It joins the buffers of the frame.
func (r receiver) next(size int) []byte {
	r.t.Helper()
	var got []byte
	for len(got) < size {
		n, _, err := r.Poll(5000)
		r.must(err)
		if n == 0 {
			r.t.Fatalf("%d of %d bytes arrived in 5 s", len(got), size)
		}
		for _, d := range r.Receive(1) {
			got = append(got, r.GetFrame(d)...)
		}
	}
	return got
}

// TestRedirect sends the fixtures over a veth. Exactly the claimed ones must reach the socket, whole and unchanged.
func TestRedirect(t *testing.T) {
	l := newLab(t)
	l.must(netlink.LinkSetMTU(l.host, 9000))
	l.inPeer(func() { l.must(netlink.LinkSetMTU(l.peer, 9000)) })
	b := newBench(t, false)
	_, err := b.Attach(l.ifindex(), ModeNative)
	l.must(err)
	l.must(b.SetMAC([6]byte(localMAC))) // the address in the fixtures
	r := l.receiver()
	l.must(b.SetSocket(0, r.FD()))
	send := l.sender()

	steered := map[Outcome]int{}
	for _, f := range fixtures() {
		if len(f.frame) > 9014 {
			continue
		}
		send(f.frame)
		if !f.want.Steered() {
			continue
		}
		steered[f.want]++
		if got := r.next(len(f.frame)); !bytes.Equal(got, f.frame) {
			t.Fatalf("%s: sent\n% x\ngot\n% x", f.name, f.frame, got)
		}
	}
	for _, pieces := range [][][]byte{pieces4(datagramID, listenPort, 32),
		pieces6(datagramID, listenPort, 32)} {
		for i, p := range pieces {
			send(p)
			if got := r.next(len(p)); !bytes.Equal(got, p) {
				t.Fatalf("fragment %d: sent\n% x\ngot\n% x", i, p, got)
			}
			if i > 0 {
				steered[Fragment]++
			} else {
				steered[Listener]++
			}
		}
	}
	if n := r.NumReceived(); n != 0 {
		t.Errorf("%d descriptors too many", n)
	}
	c, err := b.Counters()
	l.must(err)
	for o := Flow; o.Steered(); o++ {
		if c[o] != uint64(steered[o]) || c[o] == 0 {
			t.Errorf("%s: %d frames counted, %d sent", o, c[o], steered[o])
		}
	}
	if c[DropNoSocket] != 0 {
		t.Errorf("%d frames found no socket", c[DropNoSocket])
	}
}

// TestJumboSizes redirects frames of sizes around the maximum of one buffer, and of several buffers.
func TestJumboSizes(t *testing.T) {
	l := newLab(t)
	l.must(netlink.LinkSetMTU(l.host, 9000))
	l.inPeer(func() { l.must(netlink.LinkSetMTU(l.peer, 9000)) })
	b := newBench(t, false)
	_, err := b.Attach(l.ifindex(), ModeNative)
	l.must(err)
	l.must(b.SetMAC([6]byte(localMAC))) // the address in the fixtures
	r := l.receiver()
	l.must(b.SetSocket(0, r.FD()))
	send := l.sender()
	for _, n := range []int{0, 1, 1460, 3400, 3466, 3467, 4000, 7000, 8960} {
		body := bytes.Repeat([]byte{byte(n), byte(n >> 8), 0xa5}, n/3+1)[:n]
		f := frame(ether4(), ip4(local4, protoTCP), flowSegment(), gopacket.Payload(body))
		send(f)
		if got := r.next(len(f)); !bytes.Equal(got, f) {
			t.Fatalf("payload of %d: %d bytes sent, %d read, or they differ", n, len(f), len(got))
		}
	}
}
