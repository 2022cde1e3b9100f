package ethtool

import (
	"golang.org/x/sys/unix"

	"xwarp/ring"
)

// Driver is what `ethtool -i` shows.
type Driver struct{ Name, Version, Firmware, Bus string }

// ReadDriver asks which driver an interface of the calling thread's namespace has.
func ReadDriver(name string) (Driver, error) {
	d, err := ring.DriverInfo(name)
	if err != nil {
		return Driver{}, err
	}
	text := func(b []byte) string { return unix.ByteSliceToString(b) }
	return Driver{text(d.Driver[:]), text(d.Version[:]), text(d.Fw_version[:]),
		text(d.Bus_info[:])}, nil
}
