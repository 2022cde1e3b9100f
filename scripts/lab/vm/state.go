package vm

import (
	"fmt"
	"strings"
	"time"
)

// guestState and hostState are what a machine and the namespaces beside it tell about a network that fell silent.
const (
	guestState = `ip -s -s link show eth0; ip neigh; ss -tnoime; grep virtio /proc/interrupts
cat /proc/net/softnet_stat; ethtool -S eth0 | grep -v ': 0$'; nstat -as | grep -v ' 0  '`
	hostState = `ip -s -s link; ip neigh; tc -s qdisc; ss -tnoime; cat /proc/net/softnet_stat`
)

// NetworkState returns what each part of the network says about it, from the machine to the program under test, and
// whether the machine still answers on it.
func (v *VM) NetworkState() string {
	var b strings.Builder
	say := func(where, out string, err error) {
		fmt.Fprintf(&b, "\n%s:\n%s", where, out)
		if err != nil {
			fmt.Fprintln(&b, err)
		}
	}
	out, _, err := v.Run(guestState, time.Minute)
	say("the machine", out, err)
	for _, n := range []struct {
		name string
		*Netns
	}{{"the bridge", v.net.hub}, {"the peer", v.net.Peer}} {
		out, _, err = n.Run(time.Minute, "sh", "-c", hostState)
		say(n.name, out, err)
	}
	out, _, err = v.net.Peer.Run(time.Minute, "ping", "-c", "3", "-W", "5", v.Addr4.String())
	say("ping from the peer", out, err)
	return b.String()
}
