package main

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
)

// shareQueues and shareConns are the numbers of queues and connections in the trial of several queues.
const shareQueues, shareConns = 4, 64

// shares makes many connections and checks that at least two queues of the server's card receive a part of their
// packets.
func shares(r *rig, mode string) (text string, err error) {
	if err := ethtool("-L %s combined " + strconv.Itoa(shareQueues))(r); err != nil {
		return "", fmt.Errorf("%w: %w: %s", errNotOffered, err, r.kind.oneQueue)
	}
	defer ethtool("-L %s combined 1")(r)
	if err := r.reachable(); err != nil {
		return "", err
	}
	flags := fmt.Sprintf("bench write_bw -q %d -s 16384 -t 4 -n 8 -f 1 --sleep", shareConns)
	p, err := r.background(hostB, flags+r.device(hostB, mode), "Waiting")
	if err != nil {
		return "", r.requireMode(mode, 1500, err)
	}
	// igb resets its counters when a socket is opened or closed, so the maximum of all readings counts.
	before, err := r.received(in(hostB, "ethtool -S "+nic))
	if err != nil {
		return "", errors.Join(err, p.Kill())
	}
	client := in(hostA, xwarp+" "+flags+r.device(hostA, mode)+" --json "+addrB)
	_, err = r.Script(client + " & client=$!\n" +
		"while kill -0 $client 2>/dev/null; do " + in(hostB, "ethtool -S "+nic) +
		">>/tmp/queues; sleep 0.3; done\nwait $client")
	if err != nil {
		for _, h := range hosts { // writes counters and interrupts to the log
			r.Script(in(h, "ethtool -S "+nic) + "\ngrep -E 'CPU|" + nic + "' /proc/interrupts")
		}
	}
	if err = errors.Join(err, r.WaitSuccess(p)); err != nil {
		return "", err
	}
	after, err := r.received("cat /tmp/queues; rm /tmp/queues")
	if err != nil {
		return "", err
	}
	sum, used := 0, 0
	for q, n := range after {
		if n >= before[q] { // otherwise the driver has reset the counter since
			after[q] = n - before[q]
		}
		sum += after[q]
	}
	for q := range len(after) {
		if after[q]*20 > sum { // the queue received more than a twentieth of all packets
			used++
		}
		text += fmt.Sprintf(" %.0f %%", 100*float64(after[q])/float64(max(sum, 1)))
	}
	if used < 2 {
		return "", fmt.Errorf("the queues had%s", text)
	}
	return "shares" + text, nil
}

// queuePackets are the lines of ethtool -S that count a receive queue's packets, as igb and virtio_net name them.
var queuePackets = regexp.MustCompile(`(?m)^ *rx_?(?:queue_)?(\d+)_(?:xdp_)?packets: (\d+)`)

// received runs a command that prints ethtool -S once or several times. It returns the largest count of each receive
// queue's packets.
func (r *rig) received(command string) (map[int]int, error) {
	out, err := r.Script(command)
	if err != nil {
		return nil, err
	}
	n := map[int]int{}
	for _, m := range queuePackets.FindAllStringSubmatch(out, -1) {
		q, _ := strconv.Atoi(m[1])
		packets, _ := strconv.Atoi(m[2])
		n[q] = max(n[q], packets)
	}
	if len(n) < shareQueues {
		return nil, fmt.Errorf("ethtool -S shows %d receive queues", len(n))
	}
	return n, nil
}
