package nldev

import (
	"cmp"
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/counters"
	"xwarp/engine/daemon/view"
)

// kind is a kind of resource. The attribute number of an entry is that of its table plus one.
type kind struct {
	name      string
	command   uint16
	table, id uint16
	of        func(s *control.Snapshot, device string) []entry
}

// entry is a resource: the number by which it can be requested, and its attributes.
type entry struct {
	id    uint32
	attrs []byte
}

// kinds lists the kinds in the order of the kernel's summaries.
var kinds = []kind{
	{"pd", cmdResPD, resPD, resPDN, pds},
	{"cq", cmdResCQ, resCQ, resCQN, cqs},
	{"qp", cmdResQP, resQP, resLQPN, qps},
	{"cm_id", cmdResCMID, resCMID, resCMIDN, cmIDs},
	{"mr", cmdResMR, resMR, resMRN, mrs},
	{"ctx", cmdResCtx, resCtx, resCtxN, contexts},
	{"srq", cmdResSRQ, resSRQ, resSRQN, srqs},
}

// entries returns an entry for each object of a device.
func entries[T interface{ IsOn(string) bool }](list []T, device string, make func(*T) entry) (
	all []entry) {
	for _, v := range control.On(device, list) {
		all = append(all, make(&v))
	}
	return all
}

// owner returns the attribute for the owner of an object. Objects of exports appear as those of a kernel module.
func owner(o *control.Owner) []byte {
	if o.Pid == 0 {
		return str(resKernName, "xwarpd")
	}
	return u32(resPID, uint32(o.Pid))
}

func pds(s *control.Snapshot, device string) []entry {
	return entries(s.PDs, device, func(p *control.PDState) entry {
		return entry{uint32(p.Handle), join(u64(resUseCount, uint64(p.Users)),
			u32(resPDN, uint32(p.Handle)), owner(&p.Owner))}
	})
}

func cqs(s *control.Snapshot, device string) []entry {
	return entries(s.CQs, device, func(c *control.CQState) entry {
		return entry{uint32(c.Handle), join(u32(resCQE, uint32(c.Depth)),
			u64(resUseCount, uint64(c.Users)), u32(resCQN, uint32(c.Handle)), owner(&c.Owner))}
	})
}

func mrs(s *control.Snapshot, device string) []entry {
	return entries(s.MRs, device, func(m *control.MRState) entry {
		return entry{uint32(m.Handle), join(u32(resRKey, uint32(m.STag)), u64(resMRLen, m.Length),
			u32(resPDN, uint32(m.PD)), u32(resMRN, uint32(m.Handle)), owner(&m.Owner))}
	})
}

func contexts(s *control.Snapshot, device string) []entry {
	return entries(s.Sessions, device, func(c *control.SessionState) entry {
		return entry{uint32(c.Session), join(u32(resCtxN, uint32(c.Session)), owner(&c.Owner))}
	})
}

func srqs(s *control.Snapshot, device string) []entry {
	return entries(s.SRQs, device, func(q *control.SRQState) entry {
		var users [][]byte
		for i := range s.QPs {
			if p := &s.QPs[i]; p.Session == q.Session && p.SRQ == q.Handle {
				users = append(users, nest(resQP+1, u32(resLQPN, qpn(p))))
			}
		}
		return entry{uint32(q.Handle), join(u32(resSRQN, uint32(q.Handle)), u8(resType, 0),
			nest(resQP, users...), u32(resPDN, uint32(q.PD)), owner(&q.Owner))}
	})
}

// qpn returns the queue pair number that the program and its peers use. Queue pairs of exports have no number: for them
// it returns the handle.
func qpn(q *control.QPState) uint32 {
	return cmp.Or(q.Number, uint32(q.Handle))
}

func qps(s *control.Snapshot, device string) []entry {
	states := map[string]uint8{"IDLE": stReset, "RTR": stRTR, "RTS": stRTS, "CLOSING": stSQD}
	return entries(s.QPs, device, func(q *control.QPState) entry {
		state, there := states[q.State]
		if !there {
			state = stErr
		}
		return entry{qpn(q), join(u32(portIndex, 1), u32(resLQPN, qpn(q)), u32(resSQPSN, 0),
			u8(resType, typeRC), u8(resState, state), u32(resPDN, uint32(q.PD)), owner(&q.Owner))}
	})
}

// cmIDs returns listeners and connections, numbered consecutively.
func cmIDs(s *control.Snapshot, device string) []entry {
	all := entries(view.Listeners(s), device, func(l *control.ListenerState) entry {
		return entry{attrs: join(u8(resState, cmListen), address(resSrcAddr, l.Addr),
			owner(&l.Owner))}
	})
	states := map[string]uint8{"IDLE": cmIdle, "RTR": cmConnect, "RTS": cmConnect}
	all = append(all, entries(slices.DeleteFunc(slices.Clone(s.QPs), func(q control.QPState) bool {
		return !q.Remote.IsValid()
	}), device, func(q *control.QPState) entry {
		state, there := states[q.State]
		if !there {
			state = cmDisconnect
		}
		return entry{attrs: join(u32(resLQPN, qpn(q)), u8(resState, state),
			address(resSrcAddr, q.Local), address(resDstAddr, q.Remote), owner(&q.Owner))}
	})...)
	for i := range all {
		all[i].id = uint32(i + 1)
		all[i].attrs = join(u32(portIndex, 1), u32(resCMIDN, all[i].id), u8(resType, typeRC),
			u32(resPS, portSpaceTCP), all[i].attrs)
	}
	return all
}

// address returns an attribute with a socket address, of the length of a sockaddr_storage.
func address(kind uint16, a netip.AddrPort) []byte {
	var b [128]byte
	binary.BigEndian.PutUint16(b[2:], a.Port())
	if ip := a.Addr().Unmap(); ip.Is4() {
		binary.NativeEndian.PutUint16(b[:], unix.AF_INET)
		copy(b[4:], ip.AsSlice())
	} else {
		binary.NativeEndian.PutUint16(b[:], unix.AF_INET6)
		copy(b[8:], ip.AsSlice())
	}
	return attr(kind, b[:])
}

// hardwareCounters returns the counters of a device that are also metrics. Names of MPA and TCP counters have the
// protocol as a prefix.
func hardwareCounters(s *control.Snapshot, device string) (all [][]byte) {
	values := map[string]uint64{}
	for prefix, part := range map[string]string{"": "rdma", "mpa_": "mpa", "tcp_": "tcp"} {
		v := s.Statistics.Values(device, part)
		for _, c := range counters.ByPart(part) {
			if c.Metric != "" && v != nil {
				values[prefix+c.Key] = c.Of(v)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		all = append(all, nest(hwEntry, str(hwName, name), u64(hwValue, values[name])))
	}
	return all
}
