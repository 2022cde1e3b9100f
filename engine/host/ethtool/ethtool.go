// Package ethtool reads and sets offloads, queues and rings of an interface of the calling thread's network namespace,
// as ethtool(8) does.
package ethtool

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"xwarp/ring"
)

const featureStrings = 4 // ETH_SS_FEATURES of linux/ethtool.h

// Ioctl runs one SIOCETHTOOL command on an interface of the calling thread's namespace. b holds the command's
// structure, which begins with the number of the command.
func Ioctl(name string, b []byte) error {
	if len(name) >= unix.IFNAMSIZ {
		return fmt.Errorf("interface name %q is longer than %d bytes", name, unix.IFNAMSIZ-1)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte // struct ifreq has 40 bytes
	}{data: unsafe.Pointer(&b[0])}
	copy(req.name[:], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL,
		uintptr(unsafe.Pointer(&req)))
	runtime.KeepAlive(b)
	if errno != 0 {
		return errno
	}
	return nil
}

// Words returns a structure that consists of the 32-bit fields w, followed by room zero bytes.
func Words(room int, w ...uint32) []byte {
	b := make([]byte, len(w)*4+room)
	for i, v := range w {
		putWord(b, i, v)
	}
	return b
}

// Word returns field i of a structure.
func Word(b []byte, i int) uint32       { return binary.NativeEndian.Uint32(b[i*4:]) }
func putWord(b []byte, i int, v uint32) { binary.NativeEndian.PutUint32(b[i*4:], v) }

// featureNames returns the names of the features that the kernel knows, by number.
func featureNames(name string) ([]string, error) {
	b := Words(4, unix.ETHTOOL_GSSET_INFO, 0, 1<<featureStrings, 0)
	if err := Ioctl(name, b); err != nil {
		return nil, err
	}
	n := int(Word(b, 4))
	const stringLen = 32
	b = Words(n*stringLen, unix.ETHTOOL_GSTRINGS, featureStrings, uint32(n))
	if err := Ioctl(name, b); err != nil {
		return nil, err
	}
	names := make([]string, n)
	for i := range names {
		s, _, _ := bytes.Cut(b[12+i*stringLen:][:stringLen], []byte{0})
		names[i] = string(s)
	}
	return names, nil
}

// Kernel names of offloads. GRO merges received segments; VLANStripping removes the VLAN tags of received frames
// (rxvlan).
const (
	GRO           = "rx-gro"
	VLANStripping = "rx-vlan-hw-parse"
)

// Feature is the state of an offload: whether it is on, and whether the driver keeps it fixed.
type Feature struct{ On, Fixed bool }

// Features returns the offloads by their kernel names.
func Features(name string) (map[string]Feature, error) {
	names, err := featureNames(name)
	if err != nil {
		return nil, err
	}
	blocks := (len(names) + 31) / 32
	b := Words(blocks*16, unix.ETHTOOL_GFEATURES, uint32(blocks))
	if err := Ioctl(name, b); err != nil {
		return nil, err
	}
	m := make(map[string]Feature, len(names))
	for i, s := range names {
		bit := uint32(1) << (i % 32)
		at := 2 + i/32*4
		available, active, never := Word(b, at), Word(b, at+2), Word(b, at+3)
		m[s] = Feature{On: active&bit != 0, Fixed: available&bit == 0 || never&bit != 0}
	}
	return m, nil
}

// SetFeature switches one offload and checks that the kernel did so.
func SetFeature(name, what string, on bool) error {
	names, err := featureNames(name)
	if err != nil {
		return err
	}
	blocks := (len(names) + 31) / 32
	b := Words(blocks*8, unix.ETHTOOL_SFEATURES, uint32(blocks))
	found := false
	for i, s := range names {
		if s != what {
			continue
		}
		found = true
		putWord(b, 2+i/32*2, 1<<(i%32))
		if on {
			putWord(b, 3+i/32*2, 1<<(i%32))
		}
	}
	if !found {
		return fmt.Errorf("unknown offload %q", what)
	}
	if err := Ioctl(name, b); err != nil {
		return fmt.Errorf("switching %s of %s: %w", what, name, err)
	}
	now, err := Features(name)
	if err == nil && now[what].On != on {
		err = fmt.Errorf("%s of %s: the driver did not change it", what, name)
	}
	return err
}

// Channels are numbers of queues of an interface, from struct ethtool_channels.
type Channels struct{ MaxRx, MaxCombined, Rx, Combined uint32 }

// ReadChannels returns the current and maximum number of queues.
func ReadChannels(name string) (Channels, error) {
	b, err := readNumbers(name, unix.ETHTOOL_GCHANNELS)
	return Channels{MaxRx: Word(b, 1), MaxCombined: Word(b, 4), Rx: Word(b, 5),
		Combined: Word(b, 8)}, err
}

// readNumbers runs a command whose structure has eight numbers after the command, such as those for channels and rings.
func readNumbers(name string, command uint32) ([]byte, error) {
	b := Words(32, command)
	return b, Ioctl(name, b)
}

// writeNumber changes one number of b, a structure from readNumbers, to n, and runs command with it. at is the number's
// index in b, where 0 is the command itself.
func writeNumber(name string, command uint32, b []byte, at int, n uint32) error {
	putWord(b, 0, command)
	putWord(b, at, n)
	return Ioctl(name, b)
}

// Queues is the number of receive queues in use.
func (c Channels) Queues() int { return int(c.Rx + c.Combined) }

// QueuesCommand returns the command that sets the number of an interface's receive queues. Drivers without combined
// channels, such as veth, need one number for each direction.
func QueuesCommand(name string, n int) string {
	if c, err := ReadChannels(name); err == nil && c.MaxCombined == 0 && c.MaxRx > 0 {
		return fmt.Sprintf("ethtool -L %s rx %d tx %d", name, n, n)
	}
	return fmt.Sprintf("ethtool -L %s combined %d", name, n)
}

// ReceiveQueues returns the number of receive queues of an interface that is up, limited to most. It asks the kernel
// (since Linux 6.8), then the driver; if both fail it returns 1.
func ReceiveQueues(ifindex int, name string, most int) int {
	if n, err := ring.ReceiveQueues(ifindex, most); err == nil {
		return n
	}
	c, err := ReadChannels(name)
	if err != nil {
		return 1
	}
	return min(max(1, c.Queues()), most)
}

// SetQueues sets the number of receive queues.
func SetQueues(name string, n uint32) error {
	b, err := readNumbers(name, unix.ETHTOOL_GCHANNELS)
	if err != nil {
		return err
	}
	at := 5
	if Word(b, 4) > 0 { // the driver has combined queues
		at = 8
	}
	return writeNumber(name, unix.ETHTOOL_SCHANNELS, b, at, n)
}

// RxRing returns the current and maximum size of the receive ring, in frames.
func RxRing(name string) (now, most uint32, err error) {
	b, err := readNumbers(name, unix.ETHTOOL_GRINGPARAM)
	return Word(b, 5), Word(b, 1), err
}

// SetRxRing sets the size of the receive ring to n frames.
func SetRxRing(name string, n uint32) error {
	b, err := readNumbers(name, unix.ETHTOOL_GRINGPARAM)
	if err != nil {
		return err
	}
	return writeNumber(name, unix.ETHTOOL_SRINGPARAM, b, 5, n)
}

// Driver is the output of `ethtool -i`.
type Driver struct{ Name, Version, Firmware, Bus string }

// ReadDriver returns the driver of an interface of the calling thread's namespace.
func ReadDriver(name string) (Driver, error) {
	d, err := ring.DriverInfo(name)
	if err != nil {
		return Driver{}, err
	}
	text := func(b []byte) string { return unix.ByteSliceToString(b) }
	return Driver{text(d.Driver[:]), text(d.Version[:]), text(d.Fw_version[:]),
		text(d.Bus_info[:])}, nil
}
