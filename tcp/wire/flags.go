package wire

// Flags are the nine control bits of a TCP header; Header.Put sends the other bits as zero.
type Flags uint16

const (
	FIN Flags = 1 << iota
	SYN
	RST
	PSH
	ACK
	URG
	ECE
	CWR
	AE // RFC 9768; the nonce sum of RFC 3540
)

// FlagMask covers every defined flag.
const FlagMask = FIN | SYN | RST | PSH | ACK | URG | ECE | CWR | AE

// Has reports whether every flag of o is set in f.
func (f Flags) Has(o Flags) bool { return f&o == o }

// String spells f the way tcpdump does, "." for ACK.
func (f Flags) String() string {
	const letters = "FSRP.UEWA"
	if f&FlagMask == 0 {
		return "none"
	}
	b := make([]byte, 0, len(letters))
	for i := range len(letters) {
		if f&(1<<i) != 0 {
			b = append(b, letters[i])
		}
	}
	return string(b)
}
