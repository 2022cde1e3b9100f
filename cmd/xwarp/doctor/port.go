package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"xwarp/engine/host/holder"
	"xwarp/engine/host/ports"
	"xwarp/engine/ranges"
)

const (
	localRange    = "/proc/sys/net/ipv4/ip_local_port_range"
	localReserved = "/proc/sys/net/ipv4/ip_local_reserved_ports"
)

var portCheck = check{
	name: "ports",
	why: "a port of xwarp must not be in use by another program's socket, nor in the range of " +
		"ephemeral ports",
	look: func(e *env) finding {
		if len(e.opt.Ports) == 0 {
			return fine("none given (--port)")
		}
		var held []string
		for _, p := range e.opt.Ports {
			for _, a := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
				r, err := ports.Reserve(netip.AddrPortFrom(a, p))
				if errors.Is(err, ports.ErrInUse) {
					who := holder.OfPort(p)
					if !allOwn(who) {
						return fail("port %d is in use%s", p, by(who)).
							advise("ss -tanp 'sport = :%d'", p)
					}
					held = append(held, fmt.Sprintf("%d%s", p, by(who)))
					break
				}
				r.Close()
			}
		}
		if p, ok := e.ephemeral(); ok {
			return warn("port %d is in the range of ephemeral ports", p).
				advise("sysctl -w net.ipv4.ip_local_reserved_ports=%s", e.reserved())
		}
		if len(held) > 0 {
			return fine("used already: %s; all others of %v are free", strings.Join(held, ", "),
				e.opt.Ports)
		}
		return fine("free: %v", e.opt.Ports)
	},
	want: func(e *env) (settings, error) { return settings{localReserved: e.reserved()}, nil },
	get:  readSetting,
	put:  putIn(localReserved),
}

// allOwn reports whether the processes that hold a port are known and are all of xwarp.
func allOwn(list []holder.Process) bool {
	for _, p := range list {
		if !strings.HasPrefix(p.Command, "xwarp") {
			return false
		}
	}
	return len(list) > 0
}

// by formats the holders of a port as the end of a sentence, or "" if they are unknown.
func by(list []holder.Process) string {
	if len(list) == 0 {
		return ""
	}
	return " by " + holder.Text(list)
}

// ephemeral returns the first of Options.Ports that is in the range of ephemeral ports and not reserved. ok is false if
// there is none.
func (e *env) ephemeral() (uint16, bool) {
	b, err := os.ReadFile(localRange)
	if err != nil {
		return 0, false
	}
	var low, high uint16
	if n, _ := fmt.Sscan(string(b), &low, &high); n != 2 {
		return 0, false
	}
	out, _ := os.ReadFile(localReserved)
	for _, p := range e.opt.Ports {
		if p >= low && p <= high && !ranges.Contain(string(out), uint64(p)) {
			return p, true
		}
	}
	return 0, false
}

// reserved returns the kernel's list of reserved ports with Options.Ports added.
func (e *env) reserved() string {
	list, _ := readSetting(nil, localReserved)
	for _, p := range e.opt.Ports {
		if ranges.Contain(list, uint64(p)) {
			continue
		}
		if list != "" {
			list += ","
		}
		list += strconv.Itoa(int(p))
	}
	return list
}
