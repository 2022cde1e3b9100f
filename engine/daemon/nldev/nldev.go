// Package nldev answers NETLINK_RDMA requests about the daemon's devices, as sent by rdma(8) of iproute2. The library
// for unmodified programs forwards them. Only read requests are answered.
package nldev

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"xwarp/engine/daemon/control"
)

// Device is a device as programs see it.
type Device struct {
	Name     string            // its libibverbs name
	Netdev   string            // its network interface, which is its name in snapshots
	Index    int               // index of the network interface
	Protocol string            // "iw" or "roce"
	Files    map[string]string // content of its files, by path below /sys/class/infiniband/Name
}

// maxDatagram is the maximum length of a datagram in bytes: that of the smallest receive buffer of libmnl.
const maxDatagram = 4096

// request is a parsed request.
type request struct {
	header  unix.NlMsghdr
	command uint16
	numbers map[uint16]uint32 // its 32-bit attributes
}

// Answer returns the datagrams that answer a request. It calls snapshot for requests about resources and counters. It
// fails with a unix.Errno, which the caller reports in an NLMSG_ERROR message, or with the error of snapshot.
func Answer(b []byte, devices []Device, snapshot func() (*control.Snapshot, error)) ([][]byte,
	error) {
	r, err := parse(b)
	if err != nil {
		return nil, err
	}
	var out writer
	dump := r.header.Flags&unix.NLM_F_DUMP == unix.NLM_F_DUMP
	bodies, err := r.bodies(devices, dump, snapshot)
	if err != nil {
		return nil, err
	}
	flags := uint16(0)
	if dump {
		flags = unix.NLM_F_MULTI
	}
	for _, body := range bodies {
		out.add(&r.header, r.header.Type, flags, body)
	}
	switch {
	case dump:
		out.add(&r.header, unix.NLMSG_DONE, flags, make([]byte, 4))
	case r.header.Flags&unix.NLM_F_ACK != 0:
		out.add(&r.header, unix.NLMSG_ERROR, 0, append(make([]byte, 4), b[:unix.SizeofNlMsghdr]...))
	}
	return out.datagrams, nil
}

// parse parses a request, which is one message.
func parse(b []byte) (r request, err error) {
	if _, err = binary.Decode(b, binary.NativeEndian, &r.header); err != nil ||
		r.header.Len < unix.SizeofNlMsghdr || int(r.header.Len) > len(b) {
		return r, unix.EINVAL
	}
	if r.header.Type>>clientShift != clientNLDev {
		return r, unix.EOPNOTSUPP
	}
	r.command = r.header.Type & (1<<clientShift - 1)
	r.numbers = map[uint16]uint32{}
	for a := b[unix.SizeofNlMsghdr:r.header.Len]; len(a) >= unix.SizeofNlAttr; {
		n := int(binary.NativeEndian.Uint16(a))
		if n < unix.SizeofNlAttr || n > len(a) {
			return r, unix.EINVAL
		}
		if n == unix.SizeofNlAttr+4 {
			r.numbers[binary.NativeEndian.Uint16(a[2:])&^unix.NLA_F_NESTED] =
				binary.NativeEndian.Uint32(a[unix.SizeofNlAttr:])
		}
		a = a[min(align(n), len(a)):]
	}
	return r, nil
}

// bodies returns the attributes of each message of the answer.
func (r *request) bodies(devices []Device, dump bool, snapshot func() (*control.Snapshot, error)) (
	list [][]byte, err error) {
	switch {
	case r.command == cmdSysGet:
		return [][]byte{join(u8(sysNetns, 1), u8(sysCopyOnFork, 1))}, nil
	case r.command == cmdGet && dump:
		for i := range devices {
			list = append(list, devices[i].attrs(i))
		}
		return list, nil
	}
	i, there := r.numbers[devIndex]
	if !there || int(i) >= len(devices) {
		return nil, unix.EINVAL
	}
	d := &devices[i]
	switch r.command {
	case cmdGet:
		return [][]byte{d.attrs(int(i))}, nil
	case cmdPortGet:
		if n, there := r.numbers[portIndex]; !there && !dump || there && n != 1 {
			return nil, unix.EINVAL
		}
		return [][]byte{join(d.ident(int(i)), d.port())}, nil
	}
	s, err := snapshot()
	if err != nil {
		return nil, err
	}
	switch k := slices.IndexFunc(kinds, func(k kind) bool { return k.command == r.command }); {
	case k >= 0:
		return r.resources(&kinds[k], d, s, dump)
	case r.command == cmdResGet:
		var all [][]byte
		for k := range kinds {
			n := len(kinds[k].of(s, d.Netdev))
			all = append(all, nest(summaryEntry, str(summaryName, kinds[k].name),
				u64(summaryCurr, uint64(n))))
		}
		return [][]byte{join(d.ident(int(i)), nest(resSummary, all...))}, nil
	case r.command == cmdStatGet && dump: // no queue pair or region has bound counters
		return nil, nil
	case r.command == cmdStatGet && r.numbers[statRes] == 0 && r.numbers[portIndex] == 1:
		return [][]byte{join(d.ident(int(i)), u32(portIndex, 1),
			nest(hwCounters, hardwareCounters(s, d.Netdev)...))}, nil
	}
	return nil, unix.EOPNOTSUPP
}

// resources returns the messages about all resources of a kind, or about the requested one.
func (r *request) resources(k *kind, d *Device, s *control.Snapshot, dump bool) (list [][]byte,
	err error) {
	id, named := r.numbers[k.id]
	if !dump && !named {
		return nil, unix.EINVAL
	}
	ident := d.ident(int(r.numbers[devIndex]))
	for _, e := range k.of(s, d.Netdev) {
		switch {
		case dump:
			list = append(list, join(ident, nest(k.table, nest(k.table+1, e.attrs))))
		case e.id == id:
			list = append(list, join(ident, e.attrs))
		}
	}
	if !dump && list == nil {
		err = unix.ENOENT
	}
	return list, err
}

// ident returns the leading attributes of every message about a device.
func (d *Device) ident(i int) []byte { return join(u32(devIndex, uint32(i)), str(devName, d.Name)) }

func (d *Device) attrs(i int) []byte {
	return join(d.ident(i), u32(portIndex, 1), str(fwVersion, d.Files["fw_ver"]),
		u64(nodeGUID, guid(d.Files["node_guid"])),
		u64(sysImageGUID, guid(d.Files["sys_image_guid"])),
		u8(devNodeType, number(d.Files["node_type"])), str(devProtocol, d.Protocol))
}

func (d *Device) port() []byte {
	return join(u32(portIndex, 1), u8(portState, number(d.Files["ports/1/state"])),
		u8(portPhysState, number(d.Files["ports/1/phys_state"])),
		u32(netdevIndex, uint32(d.Index)), str(netdevName, d.Netdev))
}

// guid parses a GUID of a sysfs file.
func guid(text string) uint64 {
	n, _ := strconv.ParseUint(strings.ReplaceAll(text, ":", ""), 16, 64) // our own file: always valid
	return n
}

// number parses the leading number of a file, such as "4: ACTIVE".
func number(text string) uint8 {
	var n uint8
	fmt.Sscanf(text, "%d:", &n)
	return n
}

// writer collects messages in datagrams.
type writer struct{ datagrams [][]byte }

// add appends a message to the last datagram, or to a new one.
func (w *writer) add(r *unix.NlMsghdr, kind, flags uint16, body []byte) {
	h := unix.NlMsghdr{Len: uint32(unix.SizeofNlMsghdr + len(body)), Type: kind, Flags: flags,
		Seq: r.Seq, Pid: r.Pid}
	b, _ := binary.Append(nil, binary.NativeEndian, &h) // cannot fail: fixed size
	b = pad(append(b, body...))
	if n := len(w.datagrams); n == 0 || len(w.datagrams[n-1])+len(b) > maxDatagram {
		w.datagrams = append(w.datagrams, b)
	} else {
		w.datagrams[n-1] = append(w.datagrams[n-1], b...)
	}
}

// align rounds a length up to the alignment of messages and attributes.
func align(n int) int { return (n + unix.NLA_ALIGNTO - 1) &^ (unix.NLA_ALIGNTO - 1) }

func pad(b []byte) []byte { return append(b, make([]byte, align(len(b))-len(b))...) }

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// attr returns an attribute; u8, u32, u64, str and nest return one with a value of that kind.
func attr(kind uint16, v []byte) []byte { return nl.NewRtAttr(int(kind), v).Serialize() }

func u8(kind uint16, v uint8) []byte   { return attr(kind, nl.Uint8Attr(v)) }
func u32(kind uint16, v uint32) []byte { return attr(kind, nl.Uint32Attr(v)) }
func u64(kind uint16, v uint64) []byte { return attr(kind, nl.Uint64Attr(v)) }
func str(kind uint16, v string) []byte { return attr(kind, nl.ZeroTerminated(v)) }

func nest(kind uint16, parts ...[]byte) []byte { return attr(kind, join(parts...)) }
