package main

import (
	"errors"
	"fmt"
	"strings"

	"xwarp/scripts/lab/vm"
)

// startDaemon starts an xwarpd on a host, with the rig's device in a ring mode. more is added to its configuration,
// after the lines of the device's [[interface]] table.
func (r *rig) startDaemon(host, mode, more string) (*vm.Process, error) {
	p, err := r.StartDaemon(host, r.dev, fmt.Sprintf("ring_mode = %q\n%s", mode, more))
	return p, wrapNotOffered(err)
}

// withDaemons runs f while each host has an xwarpd. The transfers of f go through these daemons.
func (r *rig) withDaemons(mode, more string, f func() (string, error)) (text string, err error) {
	for _, h := range hosts {
		d, failure := r.startDaemon(h, mode, more)
		if failure != nil {
			return "", failure
		}
		defer func() { err = errors.Join(err, r.Interrupt(d)) }()
	}
	r.daemons = true
	defer func() { r.daemons = false }()
	return f()
}

// fewChunks is a number of chunks smaller than the cards' own rings, so that the fill ring is empty most of the time.
const fewChunks = 128

// badDescriptor is the cause in the text of dropped that stands for received descriptors of chunks that the kernel does
// not own.
const badDescriptor = "rx bad descriptor"

// throughDaemons returns a trial that transfers through an xwarpd on each host and reports the frames that they
// dropped. Each has rxFrames chunks for reception; zero means the engine's default.
func throughDaemons(rxFrames int) func(*rig, string) (string, error) {
	return func(r *rig, mode string) (string, error) {
		chunks := fmt.Sprintf("rx_frames = %d", rxFrames)
		return r.withDaemons(mode, chunks, func() (string, error) {
			text, err := r.transfer(mode)
			dropped, failure := r.dropped()
			if err == nil && strings.Contains(dropped, badDescriptor) {
				err = errors.New("the driver delivered chunks twice")
			}
			if err != nil {
				return "", fmt.Errorf("%w%s", err, dropped)
			}
			return text + dropped, failure
		})
	}
}

// dropped returns as text how many frames each host's daemon dropped, by cause.
func (r *rig) dropped() (text string, err error) {
	for _, h := range hosts {
		devices, err := r.Status(h)
		if err != nil {
			return "", err
		}
		for _, d := range devices[0].Dropped {
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

// inBlocks transfers through daemons in generic mode that send blocks.
func inBlocks(r *rig, mode string) (string, error) {
	r.generic = true
	defer func() { r.generic = false }()
	return r.withDaemons(mode, fmt.Sprintf("xdp_mode = \"generic\"\ntransmit = %q", blocks),
		func() (string, error) { return r.transfer(mode) })
}
