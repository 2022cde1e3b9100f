package holder

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// UserOf returns the user of the TCP socket with these addresses in the network namespace of the calling thread
// (inet_diag_req_v2 and inet_diag_msg of linux/inet_diag.h).
func UserOf(local, remote netip.AddrPort) (uid uint32, err error) {
	const idAt, idLen, uidAt = 8, 48, 4 + 48 + 12
	b := make([]byte, idAt+idLen)
	b[0], b[1] = unix.AF_INET6, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(b[4:], 1<<32-1) // in any state
	id := b[idAt:]
	for i, at := range []netip.AddrPort{local, remote} {
		binary.BigEndian.PutUint16(id[2*i:], at.Port())
		a := at.Addr().Unmap()
		if a.Is4() {
			b[0] = unix.AF_INET
		}
		copy(id[4+16*i:], a.AsSlice())
	}
	binary.NativeEndian.PutUint64(id[40:], 1<<64-1) // INET_DIAG_NOCOOKIE
	req := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, 0)
	req.AddRawData(b)
	replies, err := req.Execute(unix.NETLINK_INET_DIAG, nl.SOCK_DIAG_BY_FAMILY)
	if err != nil {
		return 0, fmt.Errorf("socket %v to %v: %w", local, remote, err)
	}
	if len(replies) != 1 || len(replies[0]) < uidAt+4 {
		return 0, fmt.Errorf("socket %v to %v: unexpected reply of the kernel", local, remote)
	}
	return binary.NativeEndian.Uint32(replies[0][uidAt:]), nil
}
