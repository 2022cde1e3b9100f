package main

import (
	"errors"
	"fmt"
	"strconv"

	"xwarp/scripts/lab/output"
)

// steering asks the driver for n-tuple rules: TCP ports to one of several queues, or to the second where there is one,
// which says as much of a driver that has none. The card is left as it was.
func steering(r *rig, _ string) (text string, err error) {
	queue := 1
	if ethtool("-L %s combined "+strconv.Itoa(shareQueues))(r) == nil {
		queue = shareQueues - 1
		defer ethtool("-L %s combined 1")(r)
	}
	doctor := in(hostB, xwarp+" doctor --json --state /var/lib/xwarp-doctor/steering.json ")
	out, err := r.run(fmt.Sprintf("%s --only flow-steering --interface %s --queue %d --port 7174 --steer --fix || true",
		doctor, nic, queue), patience)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, r.do(doctor+"--undo")) }()
	text, err = output.Doctor(out)
	if err != nil {
		err = fmt.Errorf("%w: %w", errNotOffered, err)
	}
	return text, err
}
