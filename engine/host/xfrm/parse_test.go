package xfrm

import (
	"encoding/hex"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"xwarp/engine/esp"
)

// message returns an SA as a kernel would describe it, with attributes.
func message(change func(i *nl.XfrmUsersaInfo), attrs ...*nl.RtAttr) []byte {
	i := nl.XfrmUsersaInfo{Family: unix.AF_INET, Reqid: 9, Flags: nl.XFRM_STATE_ESN}
	copy(i.Id.Daddr[:], []byte{10, 99, 0, 2})
	copy(i.Saddr[:], []byte{10, 99, 0, 1})
	i.Id.Spi, i.Id.Proto = nl.Swap32(0x1001), unix.IPPROTO_ESP
	if change != nil {
		change(&i)
	}
	b := append([]byte(nil), i.Serialize()...)
	for _, a := range attrs {
		b = append(b, a.Serialize()...)
	}
	return b
}

func algorithm(name string, key []byte, icv uint32) *nl.RtAttr {
	a := nl.XfrmAlgoAEAD{AlgKeyLen: uint32(len(key) * 8), AlgICVLen: icv, AlgKey: key}
	copy(a.AlgName[:], name)
	return nl.NewRtAttr(nl.XFRMA_ALG_AEAD, a.Serialize())
}

func number32(kind int, v uint32) *nl.RtAttr {
	return nl.NewRtAttr(kind, native.AppendUint32(nil, v))
}

func TestParseSA(t *testing.T) {
	key, _ := hex.DecodeString(testKey)
	replay := nl.XfrmReplayStateEsn{BmpLen: 1, OSeq: 7, OSeqHi: 2, ReplayWindow: 32,
		Bmp: make([]uint32, 1)}
	b := message(nil, algorithm(aead, key, 128), number32(nl.XFRMA_IF_ID, testIfID),
		nl.NewRtAttr(nl.XFRMA_REPLAY_ESN_VAL, replay.Serialize()))
	sa, err := parseSA(b)
	if err != nil || sa.unusable != nil ||
		sa.String() != "ESP SPI 0x00001001 10.99.0.1 > 10.99.0.2" ||
		sa.Sent != 2<<32|7 || sa.IfID != testIfID || !sa.ESN || len(sa.Keymat) != 20 {
		t.Errorf("%+v, %v, %v", sa, err, sa.unusable)
	}
	for n := range b { // a truncated message is an error, or has fewer attributes
		if sa, err := parseSA(b[:n:n]); err == nil && sa != nil && sa.unusable == nil &&
			n < len(b)-40 {
			t.Errorf("%d of %d bytes: usable", n, len(b))
		}
	}
}

func TestParseSARefusesWhatESPCannotDo(t *testing.T) {
	key, _ := hex.DecodeString(testKey)
	good := algorithm(aead, key, 128)
	for _, c := range []struct {
		b    []byte
		want string
	}{
		{message(nil, nl.NewRtAttr(nl.XFRMA_ALG_CRYPT, make([]byte, 68+16))), "esp_proposals"},
		{message(nil, nl.NewRtAttr(nl.XFRMA_ALG_AUTH_TRUNC, make([]byte, 72))), "esp_proposals"},
		{message(nil, algorithm("rfc4106(gcm(aes))", key, 64)), "ICV of 64 bits"},
		{message(nil, algorithm("rfc4309(ccm(aes))", key, 128)), "rfc4309"},
		{message(nil, algorithm(aead, make([]byte, 20), 128)), "lockdown"},
		{message(func(i *nl.XfrmUsersaInfo) { i.Mode = 4 }, good), "unsupported mode 4"}, // BEET
		{message(nil, good, nl.NewRtAttr(nl.XFRMA_ENCAP, make([]byte, 24))), "encap = no"},
		{message(nil, good, nl.NewRtAttr(nl.XFRMA_OFFLOAD_DEV, make([]byte, 8))), "hw_offload"},
		{message(nil, good, number32(nl.XFRMA_SA_EXTRA_FLAGS, oseqMayWrap)), "may wrap"},
	} {
		sa, err := parseSA(c.b)
		if err != nil || sa.unusable == nil || !strings.Contains(sa.unusable.Error(), c.want) {
			t.Errorf("want %q: %v, %v", c.want, err, sa.unusable)
		}
	}
	ah := message(func(i *nl.XfrmUsersaInfo) { i.Id.Proto = unix.IPPROTO_AH })
	if sa, err := parseSA(ah); sa != nil || err != nil {
		t.Errorf("an SA of AH: %v, %v", sa, err)
	}
}

func FuzzParse(f *testing.F) {
	key, _ := hex.DecodeString(testKey)
	f.Add(message(nil, algorithm(aead, key, 128), number32(nl.XFRMA_IF_ID, 1)))
	f.Fuzz(func(t *testing.T, b []byte) {
		if sa, err := parseSA(b); err == nil && sa != nil && sa.unusable == nil {
			sa.SPI = max(sa.SPI, 1)
			if _, err := esp.NewOut(&sa.SA, 0); err != nil && len(sa.Keymat) == 20 {
				t.Error(err)
			}
			sa.poison()
		}
		parsePolicy(b)
	})
}

// TestTrapPolicyKnowsDirections uses the policies of strongSwan's start_action = trap, whose templates have no
// addresses. Each must use only the SA of its own direction.
func TestTrapPolicyKnowsDirections(t *testing.T) {
	local, remote := netip.MustParsePrefix(us+"/32"), netip.MustParsePrefix(peer+"/32")
	none := netip.IPv4Unspecified()
	out := &Policy{Out: true, Local: local, Remote: remote, Src: none, Dst: none, ReqID: 1}
	in := &Policy{Local: local, Remote: remote, Src: none, Dst: none, ReqID: 1}
	there := &SA{Src: local.Addr(), Dst: remote.Addr(), ReqID: 1}
	back := &SA{Src: remote.Addr(), Dst: local.Addr(), ReqID: 1}
	if !out.Uses(there) || !in.Uses(back) || out.Uses(back) || in.Uses(there) {
		t.Errorf("out: %v, %v; in: %v, %v", out.Uses(there), out.Uses(back), in.Uses(back),
			in.Uses(there))
	}
}

// TestParseHideDSCP: the outer header of a tunnel hides the DSCP only if the SA has the flag for that, 1 in Linux's
// xfrm.h.
func TestParseHideDSCP(t *testing.T) {
	key, _ := hex.DecodeString(testKey)
	for flags, want := range map[uint32]bool{0: false, 1: true} {
		sa, err := parseSA(message(func(i *nl.XfrmUsersaInfo) { i.Mode = modeTunnel },
			algorithm(aead, key, 128), number32(nl.XFRMA_SA_EXTRA_FLAGS, flags)))
		if err != nil || sa.unusable != nil || sa.HideDSCP != want {
			t.Errorf("flags %d: %+v, %v", flags, sa, err)
		}
	}
}

// TestReservedSPIIsNoSA: an IKE daemon reserves an SPI before it negotiates, and a dump lists it without a key. parseSA
// must return neither an SA nor an error.
func TestReservedSPIIsNoSA(t *testing.T) {
	b := message(nil, number32(nl.XFRMA_IF_ID, testIfID))
	if sa, err := parseSA(b); sa != nil || err != nil {
		t.Errorf("%v, %v", sa, err)
	}
}

// TestDumpIsSorted: oldestFirst puts the SA that was added last, which is used for sending, at the end of a dump.
func TestDumpIsSorted(t *testing.T) {
	var list []*SA // as the kernel lists them
	for _, x := range []struct{ spi, added uint32 }{{4, 90}, {3, 80}, {2, 80}, {1, 80}} {
		sa := &SA{SA: esp.SA{SPI: x.spi}}
		sa.info.Curlft.AddTime = uint64(x.added)
		list = append(list, sa)
	}
	oldestFirst(list)
	for i, sa := range list {
		if sa.SPI != uint32(i+1) {
			t.Errorf("SPI %d is at %d", sa.SPI, i)
		}
	}
}

// TestRefusedMayCallTheFollower: Options.Refused may read the counters, or wait for a goroutine that does.
func TestRefusedMayCallTheFollower(t *testing.T) {
	done := make(chan struct{})
	f := &Follower{timers: map[*time.Timer]bool{}}
	f.opt.Log = slog.New(slog.DiscardHandler)
	f.opt.Refused = func(error) {
		f.Counters()
		close(done)
	}
	go f.refuse(&SA{}, errors.New("of no use"))
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("Refused waits for the Follower")
	}
}

// TestReinstalledSAIsNoNewSA: an SA that is installed again with its key and SPI, such as for another address, must not
// restart its sequence numbers (RFC 4106, 2). Another SPI makes another SA.
func TestReinstalledSAIsNoNewSA(t *testing.T) {
	f := &Follower{}
	sa := func(spi uint32, key byte) *SA {
		return &SA{SA: esp.SA{SPI: spi, Keymat: esp.Keymat{key, 2, 3}}}
	}
	if f.wasTaken(sa(1, 1)) || f.wasTaken(sa(2, 1)) || f.wasTaken(sa(1, 2)) {
		t.Error("another SA was taken before")
	}
	moved := sa(1, 1)
	moved.Dst = netip.MustParseAddr(peer)
	if !f.wasTaken(moved) {
		t.Error("the same key at another address is a new SA")
	}
	for i := range uint32(2 * maxTaken) {
		f.wasTaken(sa(100+i, 9))
	}
	if len(f.taken) != maxTaken {
		t.Errorf("%d are remembered", len(f.taken))
	}
}

// TestEndOfAnSA: the kernel announces a hard limit without the key, and sends no deletion. SAs of another mark may
// share the address and the SPI. The end of one SA must remove that SA only.
func TestEndOfAnSA(t *testing.T) {
	id := nl.XfrmUsersaId{Spi: nl.Swap32(0x1001), Family: unix.AF_INET, Proto: unix.IPPROTO_ESP}
	copy(id.Daddr[:], []byte{10, 99, 0, 2})
	ah := id
	ah.Proto = unix.IPPROTO_AH
	mark := func(v uint32) *nl.RtAttr {
		return nl.NewRtAttr(nl.XFRMA_MARK, (&nl.XfrmMark{Value: v, Mask: 0xff}).Serialize())
	}
	hard := func(m *nl.RtAttr) []byte {
		return append(append(message(nil), 1, 0, 0, 0, 0, 0, 0, 0), m.Serialize()...)
	}
	deletion := func(m *nl.RtAttr) []byte { return append(id.Serialize(), m.Serialize()...) }
	for _, c := range []struct {
		name string
		kind uint16
		body []byte
		left int
	}{
		{"soft", nl.XFRM_MSG_EXPIRE, append(message(nil), make([]byte, 8)...), 1},
		{"hard", nl.XFRM_MSG_EXPIRE, hard(mark(7)), 0},
		{"hard limit of another mark", nl.XFRM_MSG_EXPIRE, hard(mark(8)), 1},
		{"deletion", nl.XFRM_MSG_DELSA, deletion(mark(7)), 0},
		{"deletion of another mark", nl.XFRM_MSG_DELSA, deletion(mark(8)), 1},
		{"deletion without a mark", nl.XFRM_MSG_DELSA, id.Serialize(), 1},
		{"deletion of an AH", nl.XFRM_MSG_DELSA, ah.Serialize(), 1},
	} {
		key, _ := hex.DecodeString(testKey)
		sa, err := parseSA(message(nil, algorithm(aead, key, 128), mark(7)))
		if err != nil {
			t.Fatal(err)
		}
		f := &Follower{entries: []*entry{{sa: sa, status: outbound}}}
		f.opt.Notify = func(*Snapshot) {}
		f.change(c.kind, c.body)
		if len(f.entries) != c.left {
			t.Errorf("%s: %d SAs are left", c.name, len(f.entries))
		}
	}
}
