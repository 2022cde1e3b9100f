package esp

import (
	"bytes"
	crand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
)

const protoTCP = 6

// pair returns the two ends of an SA. first is its first sequence number.
func pair(t testing.TB, sa SA, window int, first uint64) (*Out, *In) {
	t.Helper()
	if sa.SPI == 0 {
		sa.SPI = 0x1001
	}
	if sa.Keymat == nil {
		sa.Keymat = unhex("000102030405060708090a0b0c0d0e0f10111213")
	}
	out, err := NewOut(&sa, rand.Uint64())
	if err != nil {
		t.Fatal(err)
	}
	in, err := NewIn(&sa, window)
	if err != nil {
		t.Fatal(err)
	}
	out.last, in.window.top = first-1, first-1
	return out, in
}

// sealed returns a sealed payload.
func sealed(t testing.TB, out *Out, payload []byte, next uint8) []byte {
	t.Helper()
	b := make([]byte, len(payload)+Overhead(len(payload)))
	copy(b[HeaderLen:], payload)
	n, err := out.Seal(b, len(payload), next)
	if err != nil || n != len(b) {
		t.Fatalf("sealed %d bytes as %d of %d: %v", len(payload), n, len(b), err)
	}
	return b
}

func random(n int) []byte {
	b := make([]byte, n)
	crand.Read(b)
	return b
}

func TestOpenReturnsWhatSealTook(t *testing.T) {
	for _, sa := range []SA{{}, {ESN: true}, {ESN: true, Keymat: random(36)},
		{Mode: Tunnel, ESN: true}} {
		next := uint8(protoTCP)
		if sa.Mode == Tunnel {
			next = NextIPv6
		}
		out, in := pair(t, sa, 0, 1)
		for n := range 300 {
			payload := random(n)
			got, proto, err := in.Open(sealed(t, out, payload, next))
			if err != nil || proto != next || !bytes.Equal(got, payload) {
				t.Fatalf("%+v: %d bytes: next header %d, %v", sa, n, proto, err)
			}
		}
		if in.Drops != (Drops{}) {
			t.Errorf("%+v", in.Drops)
		}
	}
}

func TestOpenRefusesEveryFlippedBit(t *testing.T) {
	out, in := pair(t, SA{ESN: true}, 0, 1)
	packet := sealed(t, out, random(40), protoTCP)
	for i := range len(packet) * 8 {
		forged := bytes.Clone(packet)
		forged[i/8] ^= 1 << (i % 8)
		if _, _, err := in.Open(forged); err == nil {
			t.Fatalf("bit %d flipped: accepted", i)
		}
	}
	if n := in.Drops.Forged + in.Drops.Replayed; n != uint64(len(packet)*8) {
		t.Errorf("%d counted of %d: %+v", n, len(packet)*8, in.Drops)
	}
	if _, _, err := in.Open(packet); err != nil {
		t.Errorf("forgeries moved the window: %v", err)
	}
}

func TestOpenRefusesEveryLength(t *testing.T) {
	out, in := pair(t, SA{}, 0, 1)
	packet := sealed(t, out, random(40), protoTCP)
	for n := range packet {
		if _, _, err := in.Open(bytes.Clone(packet[:n])); err == nil {
			t.Errorf("%d of %d bytes: accepted", n, len(packet))
		}
	}
}

func TestESNCrossesTheLowHalf(t *testing.T) {
	const first = 1<<32 - 500
	out, in := pair(t, SA{ESN: true}, 64, first)
	var held [][]byte
	for range 1000 {
		held = append(held, sealed(t, out, random(16), protoTCP))
	}
	for i := 0; i < len(held); i += 40 { // shuffled within 40
		part := held[i : i+40]
		rand.Shuffle(len(part), func(a, b int) { part[a], part[b] = part[b], part[a] })
	}
	for i, p := range held {
		if _, _, err := in.Open(bytes.Clone(p)); err != nil {
			t.Fatalf("packet %d: %v", i, err)
		}
	}
	for i, p := range held { // none twice; those far behind get a wrong high half
		if _, _, err := in.Open(bytes.Clone(p)); err == nil {
			t.Fatalf("packet %d: accepted again", i)
		}
	}
	if out.last>>32 != 1 || in.window.top != out.last {
		t.Errorf("sent %#x, received %#x", out.last, in.window.top)
	}
}

// TestOpenNeedsTheSameESN: packets are refused if only one end of the SA uses ESN.
func TestOpenNeedsTheSameESN(t *testing.T) {
	for _, esn := range []bool{false, true} {
		out, _ := pair(t, SA{ESN: esn}, 0, 1)
		_, in := pair(t, SA{ESN: !esn}, 0, 1)
		_, _, err := in.Open(sealed(t, out, random(40), protoTCP))
		if !errors.Is(err, ErrIntegrity) {
			t.Errorf("ESN %v at one end only: %v", esn, err)
		}
	}
}

func TestSealStopsBeforeANumberRepeats(t *testing.T) {
	for _, c := range []struct {
		esn  bool
		last uint64
	}{{true, 1<<64 - 1}, {false, 1<<32 - 1}} {
		out, _ := pair(t, SA{ESN: c.esn}, 0, c.last)
		if !c.esn {
			out.packets = c.last - 1
			if !out.NeedsRekey() {
				t.Error("no rekey is due before the last number")
			}
		}
		b := make([]byte, 256)
		if _, err := out.Seal(b, 10, protoTCP); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := out.Seal(b, 10, protoTCP); !errors.Is(err, ErrExpired) {
				t.Errorf("ESN %v: sealed beyond number %#x: %v", c.esn, c.last, err)
			}
		}
	}
}

func TestLimits(t *testing.T) {
	inf := uint64(none)
	for _, c := range []struct {
		limits     Limits
		soft, hard int // the packets of 100 bytes after which they are reached
	}{
		{Limits{SoftBytes: 500, HardBytes: 1000}, 5, 10},
		{Limits{SoftBytes: 501, HardBytes: 1099}, 6, 10},
		{Limits{SoftPackets: 3, HardPackets: 7, SoftBytes: inf, HardBytes: inf}, 3, 7},
		{Limits{HardPackets: 20}, 18, 20},
		{Limits{HardBytes: 2000}, 18, 20},
	} {
		out, in := pair(t, SA{ESN: true, Limits: c.limits}, 0, 1)
		free, _ := pair(t, SA{ESN: true}, 0, 1)
		for i := 1; i <= c.hard+2; i++ {
			payload := random(100)
			b := make([]byte, 256)
			_, err := out.Seal(b, len(payload), protoTCP)
			_, _, errIn := in.Open(sealed(t, free, payload, protoTCP))
			for what, err := range map[string]error{"sent": err, "received": errIn} {
				if (i > c.hard) != errors.Is(err, ErrExpired) || i <= c.hard && err != nil {
					t.Errorf("%+v: packet %d %s: %v", c.limits, i, what, err)
				}
			}
			if i <= c.hard && (out.NeedsRekey() != (i >= c.soft) ||
				in.NeedsRekey() != (i >= c.soft)) {
				t.Errorf("%+v: packet %d: rekey sending %v, receiving %v", c.limits, i,
					out.NeedsRekey(), in.NeedsRekey())
			}
		}
		if packets, bytes := in.Used(); packets != uint64(c.hard) || bytes != 100*packets {
			t.Errorf("%+v: %d packets, %d bytes received", c.limits, packets, bytes)
		}
	}
}

func TestOpenChecksTheNextHeaderAndPadding(t *testing.T) {
	for _, c := range []struct {
		mode Mode
		next uint8
		want error
	}{
		{Transport, protoTCP, nil}, {Transport, NextIPv4, ErrPayload},
		{Transport, NextIPv6, ErrPayload}, {Transport, nextDummy, ErrDummy},
		{Tunnel, NextIPv4, nil}, {Tunnel, NextIPv6, nil},
		{Tunnel, protoTCP, ErrPayload}, {Tunnel, nextDummy, ErrDummy},
	} {
		out, in := pair(t, SA{Mode: c.mode}, 0, 1)
		if _, _, err := in.Open(sealed(t, out, random(40), c.next)); !errors.Is(err, c.want) {
			t.Errorf("%v mode, next header %d: %v", c.mode, c.next, err)
		}
	}
	_, in := pair(t, SA{}, 0, 1)
	if _, _, err := in.unwrap([]byte{0, 0, 3, protoTCP}); !errors.Is(err, ErrPayload) {
		t.Errorf("3 bytes of padding among 2: %v", err)
	}
	// up to 255 bytes of padding, with any content (RFC 4303, 2.4)
	if p, _, err := in.unwrap(append(make([]byte, 264), 255, protoTCP)); err != nil || len(p) != 9 {
		t.Errorf("255 bytes of padding: %d bytes of payload, %v", len(p), err)
	}
}

func TestSentKnowsRecentNumbers(t *testing.T) {
	out, _ := pair(t, SA{ESN: true}, 0, 1)
	out.last = 1<<32 + 5
	for low, want := range map[uint32]bool{5: true, 0: true, 1<<32 - 1: true, 6: false,
		1<<32 - 95: false, 1<<32 - 94: true} {
		if out.Sent(low, 100) != want {
			t.Errorf("Sent(%#x) = %v", low, !want)
		}
	}
	out.last = 3
	for low, want := range map[uint32]bool{0: false, 1: true, 3: true, 4: false} {
		if out.Sent(low, 100) != want {
			t.Errorf("of 3: Sent(%d) = %v", low, !want)
		}
	}
}

// TestDiscard: an SA without its key neither sends nor receives, and its salt is gone.
func TestDiscard(t *testing.T) {
	out, in := pair(t, SA{ESN: true}, 64, 1)
	b := sealed(t, out, random(100), protoTCP)
	out.Discard()
	in.Discard()
	for _, k := range []*key{&out.key, &in.key} {
		if k.nonce != [12]byte{} || k.aead != (discarded{}) {
			t.Error("the SA has its key or its salt")
		}
	}
	if _, err := out.Seal(make([]byte, 256), 100, protoTCP); err != ErrExpired {
		t.Errorf("Seal: %v", err)
	}
	if _, _, err := in.Open(b); err != ErrIntegrity {
		t.Errorf("Open: %v", err)
	}
}

func TestKeymatDoesNotPrint(t *testing.T) {
	sa := SA{SPI: 1, Keymat: []byte("0123456789abcdef0123")}
	encoded, err := json.Marshal(&sa)
	if err != nil {
		t.Fatal(err)
	}
	text := string(encoded)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		text += fmt.Sprintf(verb+verb+verb, sa, &sa, sa.Keymat)
	}
	var log strings.Builder
	for _, h := range []slog.Handler{slog.NewTextHandler(&log, nil),
		slog.NewJSONHandler(&log, nil)} {
		slog.New(h).Info("sa", "sa", sa, "pointer", &sa, "key", sa.Keymat)
	}
	text += log.String()
	for _, secret := range []string{"0123", "30313233", "48 49", "0x30", "48, 49", "MDEy"} {
		if strings.Contains(text, secret) {
			t.Errorf("%q is in %s", secret, text)
		}
	}
}

func TestNoAllocation(t *testing.T) {
	out, in := pair(t, SA{ESN: true}, 0, 1)
	b := make([]byte, 2048)
	if n := testing.AllocsPerRun(1000, func() {
		n, _ := out.Seal(b, 1448, protoTCP)
		if _, _, err := in.Open(b[:n]); err != nil {
			t.Fatal(err)
		}
		if _, _, err := in.Open(b[:n]); err == nil {
			t.Fatal("replay")
		}
	}); n != 0 {
		t.Errorf("%v allocations for a packet", n)
	}
}

func benchmarkSeal(b *testing.B, key, n int) {
	out, _ := pair(b, SA{ESN: true, Keymat: random(key + 4)}, 0, 1)
	out.limits.HardBytes = none
	slots := make([]byte, 64<<14)
	b.SetBytes(int64(n))
	for i := 0; b.Loop(); i++ {
		out.Seal(slots[i%64<<14:][:1<<14], n+32, protoTCP)
	}
}

func BenchmarkSeal128of1448(b *testing.B) { benchmarkSeal(b, 16, 1448) }
func BenchmarkSeal256of1448(b *testing.B) { benchmarkSeal(b, 32, 1448) }
func BenchmarkSeal128of8948(b *testing.B) { benchmarkSeal(b, 16, 8948) }
func BenchmarkSeal128of0(b *testing.B)    { benchmarkSeal(b, 16, 0) }

// BenchmarkOpen128of1448 includes a copy of each packet, because opening overwrites it.
func BenchmarkOpen128of1448(b *testing.B) {
	out, in := pair(b, SA{ESN: true}, 0, 1)
	packet := sealed(b, out, random(1448+32), protoTCP)
	work := make([]byte, len(packet))
	b.SetBytes(1448)
	for b.Loop() {
		in.window.top, in.window.blocks[0], in.bytes = 0, 0, 0
		copy(work, packet)
		if _, _, err := in.Open(work); err != nil {
			b.Fatal(err)
		}
	}
}
