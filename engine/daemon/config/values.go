package config

import (
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"xwarp/engine/plain"
)

// Size is a number of bytes, written 4096, "64KiB", "1GiB" or "10MB".
type Size int64

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Size) UnmarshalText(b []byte) error {
	n, err := plain.ParseSize(string(b))
	*s = Size(n)
	return err
}

func (s Size) String() string { return plain.ExactSize(int64(s)) }

// Hex is a number shown in hexadecimal, as in ip-xfrm(8) and IKE daemons.
type Hex uint32

// Address is the listening address of an export: "192.0.2.1:7174", "0.0.0.0:7174" for all of IPv4, "[::]:7174" for all
// of IPv6, or ":7174" for both.
type Address netip.AddrPort

// UnmarshalText implements encoding.TextUnmarshaler. It refuses port 0.
func (a *Address) UnmarshalText(b []byte) error {
	text := string(b)
	both := strings.HasPrefix(text, ":")
	if both {
		text = "0.0.0.0" + text
	}
	at, err := netip.ParseAddrPort(text)
	if err != nil || at.Port() == 0 {
		return fmt.Errorf("%q is not an address with a port: write \"192.0.2.1:7174\", or \":7174\" for all "+
			"addresses of this host", b)
	}
	if both {
		at = netip.AddrPortFrom(netip.Addr{}, at.Port())
	}
	*a = Address(at)
	return nil
}

// MarshalText implements encoding.TextMarshaler, for the log.
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

func (a Address) String() string {
	at := netip.AddrPort(a)
	switch {
	case a == Address{}:
		return ""
	case at.Addr().IsValid():
		return at.String()
	}
	return fmt.Sprintf(":%d", at.Port())
}

// Port returns the port, or 0 if none is set.
func (a Address) Port() uint16 { return netip.AddrPort(a).Port() }

// All returns the addresses to listen on, IPv4 first.
func (a Address) All() []netip.AddrPort {
	at := netip.AddrPort(a)
	if at.Addr().IsValid() {
		return []netip.AddrPort{at}
	}
	return []netip.AddrPort{netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port()),
		netip.AddrPortFrom(netip.IPv6Unspecified(), at.Port())}
}

// ListenAddresses returns the addresses of an Address in text form, or none if it is invalid.
func ListenAddresses(text string) []netip.AddrPort {
	var a Address
	if a.UnmarshalText([]byte(text)) != nil {
		return nil
	}
	return a.All()
}

// overlaps reports whether a socket that listens on a and one that listens on b cannot exist at the same time.
func (a Address) overlaps(b Address) bool {
	for _, x := range a.All() {
		for _, y := range b.All() {
			p, q := x.Addr().Unmap(), y.Addr().Unmap()
			same := p == q || p.Is4() == q.Is4() && (p.IsUnspecified() || q.IsUnspecified())
			if same && x.Port() == y.Port() {
				return true
			}
		}
	}
	return false
}

// Duration is written "50us", "1.5s", "2m".
type Duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("%q is not a duration: write a number and us, ms, s, m or h", b)
	}
	*d = Duration(v)
	return nil
}

func (d Duration) String() string { return time.Duration(d).String() }

// AutoTime is a Duration, or AutoTimeUnset, which is written "auto".
type AutoTime time.Duration

// AutoTimeUnset lets the daemon choose the time.
const AutoTimeUnset AutoTime = -1

// UnmarshalText implements encoding.TextUnmarshaler. It refuses negative durations.
func (a *AutoTime) UnmarshalText(b []byte) error {
	if string(b) == "auto" {
		*a = AutoTimeUnset
		return nil
	}
	var d Duration
	if err := d.UnmarshalText(b); err != nil {
		return err
	}
	if d < 0 {
		return fmt.Errorf("%q is negative: write auto, 0s or a duration", b)
	}
	*a = AutoTime(d)
	return nil
}

func (a AutoTime) String() string {
	if a == AutoTimeUnset {
		return "auto"
	}
	return time.Duration(a).String()
}

// FileMode is written "0660".
type FileMode os.FileMode

// UnmarshalText implements encoding.TextUnmarshaler. It reads at most nine bits in octal digits.
func (m *FileMode) UnmarshalText(b []byte) error {
	n, err := strconv.ParseUint(string(b), 8, 9)
	if err != nil {
		return fmt.Errorf("%q is not a file mode: write octal digits such as \"0660\"", b)
	}
	*m = FileMode(n)
	return nil
}

func (m FileMode) String() string { return fmt.Sprintf("%04o", uint32(m)) }
