package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"xwarp/scripts/lab/output"
	"xwarp/scripts/lab/vm"
)

const (
	daemon       = vm.SharePath + "/xwarpd"
	daemonSocket = "/run/xwarpd-" // with a host's name behind it
)

// startDaemon starts an xwarpd that has the rig's device on a host, with rxFrames chunks for reception. Zero means the
// engine's choice. more are lines of the interface's table.
func (r *rig) startDaemon(host, mode string, rxFrames int, more ...string) (*server, error) {
	file := "/run/xwarpd-" + host + ".toml"
	if err := r.do(fmt.Sprintf(`cat >%s <<-END
	[daemon]
	socket = "%s"
	[[interface]]
	name = "%s"
	ring_mode = "%s"
	rx_frames = %d
	%s
	END`, file, daemonSocket+host, r.dev, mode, rxFrames, strings.Join(more, "\n"))); err != nil {
		return nil, err
	}
	p, err := r.spawn(in(host, daemon+" -config "+file), "listening on the operator socket")
	return &server{r: r, p: p}, err
}

// few is fewer chunks than the cards' own rings take: the fill ring runs empty all the time.
const few = 128

// badDescriptor is the text of dropped for descriptors of chunks that the kernel does not own.
const badDescriptor = "rx bad descriptor"

// throughDaemons transfers through an xwarpd on each host and returns their drops.
func throughDaemons(rxFrames int) func(*rig, string) (string, error) {
	return func(r *rig, mode string) (text string, err error) {
		for _, h := range []string{hostA, hostB} {
			d, failure := r.startDaemon(h, mode, rxFrames)
			if failure != nil {
				return "", failure
			}
			defer func() { err = errors.Join(err, d.terminate()) }()
		}
		r.daemons = true
		defer func() { r.daemons = false }()
		text, err = r.transfer(mode)
		dropped, failure := r.dropped(hostA, hostB)
		if err == nil && strings.Contains(dropped, badDescriptor) {
			err = errors.New("the driver delivered chunks twice")
		}
		if err != nil {
			return "", fmt.Errorf("%w%s", err, dropped)
		}
		return text + dropped, failure
	}
}

// dropped returns the frames that the hosts' daemons dropped, by cause.
func (r *rig) dropped(hosts ...string) (text string, err error) {
	for _, h := range hosts {
		out, err := r.runScript(in(h, xwarp+" status --json --socket "+daemonSocket+h), patience)
		if err != nil {
			return "", err
		}
		var v struct {
			Devices []struct {
				Dropped []struct {
					Cause  string
					Frames int
				}
			}
		}
		if err := json.Unmarshal([]byte(out), &v); err != nil || len(v.Devices) != 1 {
			return "", fmt.Errorf("xwarp status printed %q: %w", output.LastLine(out), err)
		}
		for _, d := range v.Devices[0].Dropped {
			text += fmt.Sprintf(", %s %d on %s", strings.ReplaceAll(d.Cause, "_", " "), d.Frames, h)
		}
	}
	return text, nil
}

func overIPv6(r *rig, mode string) (string, error) {
	r.addr = addr6 + "2"
	defer func() { r.addr = addrB }()
	return r.transfer(mode)
}
