package script

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"

	"xwarp/tcp/wire"
)

// packet is a segment to inject or to expect.
type packet struct {
	flags, either    wire.Flags // flags that must be set, and flags that may be set or not
	anyFlags         bool
	seq              span
	ack, win, urg    value
	mss, ws, ts, ecr value
	uto              value
	accecn           []value
	noaccecn         bool
	sack             []span
	sackok, nots     bool
	anySACK          bool
	raw              []byte // TCP options to send instead of others, if hasRaw is set
	hasRaw           bool
	ecn              int // ECN field of the IP header; -1: not named
	badsum, zerosum  bool
	badip, reserved  bool
	doff, cut        value
	src              netip.Addr
	save             string
	psh, nopsh       bool
}

const flagLetters = "FSRP.UEWA"

func parseFlags(s string) (f wire.Flags, err error) {
	if s == "-" {
		return 0, nil
	}
	for _, c := range s {
		i := strings.IndexRune(flagLetters, c)
		if i < 0 {
			return 0, fmt.Errorf("%q: flags are letters of %s, or -", s, flagLetters)
		}
		f |= 1 << i
	}
	return f, nil
}

// parsePacket reads "flags seq field...".
func parsePacket(words []string) (*packet, error) {
	if len(words) < 2 {
		return nil, fmt.Errorf("a segment needs flags and a sequence number")
	}
	p := &packet{ecn: -1, anyFlags: words[0] == "*"}
	var err error
	if !p.anyFlags {
		must, may, _ := strings.Cut(words[0], "~")
		if p.flags, err = parseFlags(must); err == nil {
			p.either, err = parseFlags(may)
		}
		if err != nil {
			return nil, err
		}
	}
	if p.seq, err = parseSpan(words[1]); err != nil {
		return nil, err
	}
	f := fields{words[2:]}
	for len(f.left) > 0 {
		if err := p.field(f.word(), &f); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// fields are the unread words of a line.
type fields struct{ left []string }

func (f *fields) word() string {
	if len(f.left) == 0 {
		return ""
	}
	w := f.left[0]
	f.left = f.left[1:]
	return w
}

func (p *packet) field(name string, f *fields) (err error) {
	values := map[string]*value{"ack": &p.ack, "win": &p.win, "urg": &p.urg, "mss": &p.mss,
		"ws": &p.ws, "ts": &p.ts, "ecr": &p.ecr,
		"uto": &p.uto, "doff": &p.doff, "cut": &p.cut}
	flags := map[string]*bool{"sackok": &p.sackok, "nots": &p.nots, "badsum": &p.badsum,
		"zerosum": &p.zerosum, "badip": &p.badip,
		"reserved": &p.reserved, "psh": &p.psh, "nopsh": &p.nopsh,
		"noaccecn": &p.noaccecn}
	if v := values[name]; v != nil {
		*v, err = parseValue(f.word())
		return err
	}
	if b := flags[name]; b != nil {
		*b = true
		return nil
	}
	switch name {
	case "sack":
		return p.sackField(f)
	case "accecn":
		for range 3 {
			v, err := parseValue(f.word())
			if err != nil {
				return err
			}
			p.accecn = append(p.accecn, v)
		}
	case "opts":
		p.hasRaw = true
		p.raw, err = hex.DecodeString(f.word())
	case "ecn":
		names := map[string]int{"no": 0, "ect1": 1, "ect0": 2, "ce": 3}
		bits, ok := names[f.word()]
		if !ok {
			return fmt.Errorf("ecn: want no, ect0, ect1 or ce")
		}
		p.ecn = bits
	case "src":
		p.src, err = netip.ParseAddr(f.word())
	case "save":
		p.save = f.word()
	default:
		return fmt.Errorf("%q is not a field of a segment", name)
	}
	return err
}

func (p *packet) sackField(f *fields) error {
	if len(f.left) > 0 && f.left[0] == "*" {
		f.word()
		p.anySACK = true
		return nil
	}
	for len(f.left) > 0 && strings.Contains(f.left[0], ":") {
		s, err := parseSpan(f.word())
		if err != nil {
			return err
		}
		p.sack = append(p.sack, s)
	}
	if len(p.sack) == 0 {
		return fmt.Errorf("sack: no blocks")
	}
	return nil
}
