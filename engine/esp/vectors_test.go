package esp

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

func unhex(s string) []byte {
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		panic(err)
	}
	return b
}

// vector is a test case of draft-mcgrew-gcm-test-01, 4. Keymat is the key and the salt; plain ends with padding, pad
// length and next header.
type vector struct {
	keymat        string
	seq           uint64
	esn           bool
	plain, packet string
}

// vectors are all cases of the draft except the one with a key of 192 bits and the one with SPI 0, which are refused:
// see TestNewRefusesBadParameters.
var vectors = []vector{
	{"4c80cdefbb5d10da906ac73c3613a634 2e443b68", 0x8765432100000000, true,
		`45000048699a000080114db7c0a80102c0a801010a9bf15638d3010000010000
		00000000045f736970045f756470037369700963796265726369747902646b00 0021000101020201`,
		`00004321000000004956ed7e3b244cfe fecf537e729d5b07dc30df528dd22b76
		8d1b98736696a6fd348509fa13ceac34 cfa2436f14a3f3cf65925bf1f4a13c5d
		15b21e1884f5ff6247aeabb786b93bce 61bc17d768fd9732459018148f6cbe72 2fd04796562dfdb4`},
	{"feffe9928665731c6d6a8f9467308308 cafebabe", 10, false,
		`4500003e698f000080114dccc0a80102c0a801010a980035002a2343b2d00100
		0001000000000000037369700963796265726369747902646b00000100010001`,
		`0000a5f80000000afacedbaddecaf888 deb22cd9b07c72c16e3a65beeb8df304
		a5a5897d33ae530f1ba76d5d114d2a5c 3de81827c10e9a4f51330d0eec416642
		cfbb85a5b47e48a4ec3b9ba95d918bd1 83b70d3aa8bc6ee4c309e9d85a41ad4a`},
	{"abbccddef00112233445566778899aababbccddef00112233445566778899aab 11223344", 2,
		false,
		`4500003069a6400080062690c0a801029389155e0a9e008b2dc57ee000000000
		7002400020bf0000020405b40101040201020201`,
		`4a2cbfe3000000020102030405060708 ff425c9b724599df7a3bcd510194e00d
		6a78107f1b0b1cbf06efae9d65a5d763 748a637985771d347f0545659f14e99d
		ef842d8eb335f4eecfdbf831824b4c49 15956c96`},
	{"3de09874b388e6491988d0c3607eae1f 57690e43", 0x1010101010101010, true,
		`4500003c99c300008001cb7c40679318010101010800085c0200430061626364
		65666768696a6b6c6d6e6f707172737475767761626364656667686901020201`,
		`42f67e3f101010104e280000a2fca1a3 fba2caa4853cf9f0f22cb10d86dd83b0
		fec75691cf1a04b00d1138ec9c357917 65acbd8701ad79845bf9fe3fba487bc9
		1755e6662b4c8d0d1f5e22739530320a e0d731cc978ecafaeae88f00e80d6e48`},
	{"3de09874b388e6491988d0c3607eae1f 57690e43", 0x1010101010101010, true,
		"4500001c42a200008001441f406793b6e00000020a00f5ff01020201",
		`42f67e3f101010104e280000a2fca1a3 fba2ca845e5df9f0f22c3e6e86dd831e
		1fc65792cd1af9130e1379ed369f071f 35e034be95f112e4e7d05d35`},
	{"abbccddef00112233445566778899aab decaf888", 1, true,
		`4500004933ba00007f119106c3fb1d10c2b1d326c02831ce0035dd7b800302d5
		00004e20001e8c18d75b81dc91baa0476b91b924b280389d92c963bac046ec95
		9b6266c04722b14923010101`,
		`0000010000000001cafedebaceface74 18a6fd42f72cbf4ab2a2ea901f73d814
		e3e7f243d95412e1c349c1d2fbec168f 9190feebaf2cb01984e65863965d7472
		b79da345e0e780191f0d2f0e0f496c22 6f2127b27db35724e7845d68651f57e6
		5f354f75ff17015769623436`},
	{"abbccddef00112233445566778899aababbccddef00112233445566778899aab 73616c74",
		0x156f3126dd0db99b, true,
		"45080028732c00004006e9f90a0106120a01038f06b88023dd6bafbecb71260250101f646d540001",
		`17405e67dd0db99b616e640169766563 f2d69ecdbd5a0d5b8d5ef38bad4da58d
		1f278fde98ef67549d524a3018d9a57f f4d3a31ce673119e451626c2415771e3
		b7eebca614c89b35`},
	{"3de09874b388e6491988d0c3607eae1f 57690e43", 0x1010101010101010, true,
		`45000049333e00007f119182c3fb1d10c2b1d326c02831ce0035cb458003025b
		000001e0001e8c18d65759d52284a0352c71475c8880391c764d6e5ee0496b32
		5ae270c03899493915010101`,
		`42f67e3f101010104e280000a2fca1a3 fba2cad12fc1f9f00d3cebf305410db8
		3d7784b607323d220f24b0a97d541828 00cadb0f68d99ef0e0c0c89ae9bea888
		4e52d65bc1afd0740f742444747b5b39 ab533163aad4550ee5160975cdb608c5
		769189609763b8e18caa81e2`},
	{"abbccddef00112233445566778899aababbccddef00112233445566778899aab 73616c74",
		0x156f3126dd0db99b, true,
		`636973636f0172756c657301746865016e6574776501646566696e6501746865
		746563686e6f6c6f67696573017468617477696c6c01646566696e65746f6d6f 72726f7701020201`,
		`17405e67dd0db99b616e640169766563 d4b7ed86a1777f2ea13d6973d324c69e
		7b43f826fb56831226508bebd2dceb18 d0a6df10e5487df074113e14c641024e
		3e6773d91a62ee429b043a10e3efe6b0 12a49363412364f8c0cac587f249e56b
		11e24f30e44ccc76`},
	{"7d773d00c144c525ac619d18c84a3f47 d9664267", 1<<32 - 1, false, "01020201",
		"335467aeffffffff43457e9182443bc6 437f866bcb3f699fe9b0822bac961c45 04bef270"},
	{"abbccddef00112233445566778899aab decaf888", 1, true,
		"746f016265016f72016e6f7401746f0162650001",
		`0000010000000001cafedebaceface74 29c9fc69a197d038ccdd14e2ddfcaa05
		43332164412503524303ed3c6c5f2838 43af8c3e`},
	{"6c6567616c697a656d6172696a75616e61616e64646f69746265666f72656961 7475726e",
		1<<64 - 1, true,
		`45000030da3a00008001df3bc0a80005c0a800010800c6cd0200070061626364
		65666768696a6b6c6d6e6f707172737401020201`,
		`796b6963ffffffff333021696765746d f97ab2aa356d8edce17644ac8c78e25d
		d24dedbb29ebf1b64a274b39b49c3a86 4cd3d78ca4ae68a32b42458fb57dbe82
		1dcc63b9d0937ba2945f669368661a32 9fb4c053`},
}

func (v *vector) sa() (sa SA, iv uint64) {
	packet := unhex(v.packet)
	return SA{SPI: binary.BigEndian.Uint32(packet), Keymat: unhex(v.keymat), ESN: v.esn},
		binary.BigEndian.Uint64(packet[8:])
}

func TestSealMakesTheDraftsPackets(t *testing.T) {
	for i, v := range vectors {
		sa, iv := v.sa()
		plain, want := unhex(v.plain), unhex(v.packet)
		n := len(plain) - 2 - int(plain[len(plain)-2])
		out, err := NewOut(&sa, iv^v.seq)
		if err != nil {
			t.Fatal(err)
		}
		out.last = v.seq - 1
		b := make([]byte, n+Overhead(n))
		copy(b[HeaderLen:], plain[:n])
		size, err := out.Seal(b, n, plain[len(plain)-1])
		if err != nil || !bytes.Equal(b[:size], want) {
			t.Errorf("case %d: sealed, %v\n%x, want\n%x", i, err, b[:size], want)
		}
	}
}

func TestOpenReadsTheDraftsPackets(t *testing.T) {
	for i, v := range vectors {
		sa, _ := v.sa()
		plain := unhex(v.plain)
		n := len(plain) - 2 - int(plain[len(plain)-2])
		in, err := NewIn(&sa, MinWindow)
		if err != nil {
			t.Fatal(err)
		}
		if in.window.top = v.seq - 1; !v.esn {
			in.window.top = 0
		}
		payload, next, err := in.Open(unhex(v.packet))
		if err != nil || !bytes.Equal(payload, plain[:n]) || next != plain[len(plain)-1] {
			t.Errorf("case %d: opened %x, next header %d, %v", i, payload, next, err)
		}
		if _, _, err := in.Open(unhex(v.packet)); !errors.Is(err, ErrReplay) {
			t.Errorf("case %d: the same packet again: %v", i, err)
		}
	}
}

func TestNewRefusesBadParameters(t *testing.T) {
	key := func(n int) []byte { return bytes.Repeat([]byte{7}, n) }
	for _, c := range []struct {
		sa     SA
		window int
		want   string
	}{
		{SA{SPI: 0, Keymat: key(20)}, 0, "SPI 0"},
		{SA{SPI: 1, Keymat: key(28)}, 0, "28 bytes"}, // 192 bits
		{SA{SPI: 1, Keymat: key(3)}, 0, "3 bytes"},
		{SA{SPI: 1}, 0, "0 bytes"},
		{SA{SPI: 1, Keymat: key(20)}, MinWindow - 1, "window of 31"},
		{SA{SPI: 1, Keymat: key(20)}, MaxWindow + 1, "window of"},
		{SA{SPI: 1, Keymat: key(20)}, -1, "window of"},
	} {
		_, err := NewIn(&c.sa, c.window)
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.sa, err, c.want)
		}
		if _, err := NewOut(&c.sa, 0); c.window == 0 && !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: NewOut: %v", c.sa, err)
		}
	}
}
