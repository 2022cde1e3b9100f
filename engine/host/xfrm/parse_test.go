package xfrm

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"xwarp/engine/esp"
)

// message is an SA as a kernel would describe it, with attributes.
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
	for n := range b { // a message that is cut short is an error, or has fewer attributes
		if sa, err := parseSA(b[:n:n]); err == nil && sa.unusable == nil && n < len(b)-40 {
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
		{message(nil), "esp_proposals"},
		{message(nil, algorithm("rfc4106(gcm(aes))", key, 64)), "ICV of 64 bits"},
		{message(nil, algorithm("rfc4309(ccm(aes))", key, 128)), "rfc4309"},
		{message(nil, algorithm(aead, make([]byte, 20), 128)), "lockdown"},
		{message(func(i *nl.XfrmUsersaInfo) { i.Mode = 4 }, good), "mode is 4"}, // BEET
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

// TestTrapPolicyKnowsDirections has the policies of strongSwan's start_action = trap, whose templates name no
// addresses.
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
