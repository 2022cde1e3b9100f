package main

import (
	"fmt"
	"regexp"
	"strconv"
)

// shareQueues and shareConns are what the trial of several queues has.
const shareQueues, shareConns = 4, 64

// shares spreads connections over queues and counts what each queue of the server's card received.
func shares(mode string) func(*rig) (string, error) {
	return func(r *rig) (text string, err error) {
		if err := ethtool("-L %s combined " + strconv.Itoa(shareQueues))(r); err != nil {
			return "", fmt.Errorf("%w: %w", errNotOffered, err)
		}
		defer ethtool("-L %s combined 1")(r)
		if err := r.reachable(); err != nil {
			return "", err
		}
		before, err := r.received(hostB)
		if err != nil {
			return "", err
		}
		flags := fmt.Sprintf("bench write_bw -q %d -s 16384 -t 4 -n 40 -f 1 --sleep --interface %s --ring-mode %s", shareConns, nic, mode)
		if _, err := r.pair(flags, "Waiting", flags+" --json "+addrB); err != nil {
			return "", r.expect(mode, 1500, err)
		}
		after, err := r.received(hostB)
		if err != nil {
			return "", err
		}
		sum, used := 0, 0
		for q, n := range after {
			after[q] = n - before[q]
			sum += after[q]
		}
		for q := range shareQueues {
			if after[q]*20 > sum { // a twentieth of all
				used++
			}
			text += fmt.Sprintf(" %.0f %%", 100*float64(after[q])/float64(max(sum, 1)))
		}
		if used < 2 {
			return "", fmt.Errorf("the queues had%s", text)
		}
		return "shares" + text, nil
	}
}

// queuePackets are the lines of ethtool -S that count a receive queue's packets, as igb and virtio_net name them.
var queuePackets = regexp.MustCompile(`(?m)^ *rx_?(?:queue_)?(\d+)_packets: (\d+)`)

// received counts the packets of each receive queue.
func (r *rig) received(host string) (map[int]int, error) {
	out, err := r.run(in(host, "ethtool -S "+nic), patience)
	if err != nil {
		return nil, err
	}
	n := map[int]int{}
	for _, m := range queuePackets.FindAllStringSubmatch(out, -1) {
		q, _ := strconv.Atoi(m[1])
		n[q], _ = strconv.Atoi(m[2])
	}
	if len(n) < shareQueues {
		return nil, fmt.Errorf("ethtool -S shows %d receive queues", len(n))
	}
	return n, nil
}
