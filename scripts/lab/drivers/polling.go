package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"xwarp/scripts/lab/output"
	"xwarp/scripts/lab/trial"
)

// pollRounds is the number of measurements with busy polling, and also of those without. They alternate.
const pollRounds = 5

// polling compares the frames per second of processor time with and without busy polling of the cards by the workers
// (poll_nic). It then kills a daemon that polls: afterwards the card must have its normal settings again.
func polling(r *rig, mode string) (text string, err error) {
	var rates [2][]float64
	for range pollRounds {
		for i, on := range []bool{false, true} {
			rate, state, err := r.framesPerSecond(mode, on)
			if err != nil {
				return "", r.requireMode(mode, 1500, err)
			}
			if on && state != "on" {
				return "", fmt.Errorf("%w: %s", errNotOffered, state)
			}
			rates[i] = append(rates[i], rate)
		}
	}
	off, on := median(rates[0]), median(rates[1])
	if err := r.killPolling(mode); err != nil {
		return "", err
	}
	return fmt.Sprintf("%.0f frames a second of processor time, %.0f without: ratio %.2f", on, off,
		on/off), nil
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// compare measures two rates in MiB/s in turns. It returns as text their medians, and the median, the smallest and the
// largest of the ratios within a round. It fails if the first rate is less than 0.9 of the second, both by that median
// and by the best rounds.
func compare(first, second func() (float64, error)) (string, error) {
	const rounds = 5
	var x, y, ratios []float64
	for range rounds {
		a, err := first()
		if err != nil {
			return "", err
		}
		b, err := second()
		if err != nil {
			return "", err
		}
		x, y, ratios = append(x, a), append(y, b), append(ratios, a/b)
	}
	ratio, best := median(ratios), slices.Max(x)/slices.Max(y)
	text := fmt.Sprintf("%.1f / %.1f MiB/s, ratio %.2f (%.2f – %.2f), best to best %.2f", median(x),
		median(y), ratio, ratios[0], ratios[rounds-1], best) // median has sorted them
	if ratio < 0.9 && best < 0.9 {
		return "", errors.New(text)
	}
	return text, nil
}

// framesPerSecond writes from host A to B through daemons. It returns the frames that both received per second of the
// emulator's processor time, and the state of busy polling in the status of B's daemon.
func (r *rig) framesPerSecond(mode string, poll bool) (rate float64, state string, err error) {
	_, err = r.withDaemons(mode, fmt.Sprintf("poll_nic = %v", poll), func() (string, error) {
		before, err := r.ProcessorTime()
		if err != nil {
			return "", err
		}
		if _, err := r.writeBandwidth(mode, "-q 2 -n 64"); err != nil {
			return "", err
		}
		after, err := r.ProcessorTime()
		if err != nil {
			return "", err
		}
		frames := uint64(0)
		for _, h := range hosts {
			devices, err := r.Status(h)
			if err != nil {
				return "", err
			}
			frames, state = frames+devices[0].Frames, devices[0].BusyPoll
		}
		rate = float64(frames) / (after - before).Seconds()
		fmt.Fprintf(r.Log, "-- poll_nic = %v: %d frames in %v of processor time: %.0f a second\n",
			poll, frames, after-before, rate)
		return "", nil
	})
	return rate, state, err
}

// deferred is the text that xwarp doctor prints about a card while a worker polls it.
const deferred = "defers its interrupt"

// killPolling kills a daemon on host B with SIGKILL while it polls. Afterwards the card's interrupt must not stay
// deferred.
func (r *rig) killPolling(mode string) error {
	d, err := r.startDaemon(hostB, mode, "poll_nic = true")
	if err != nil {
		return err
	}
	look := in(hostB, xwarp+" doctor --only busy-poll --interface "+nic+" --json")
	out, err := r.Script(look)
	if err != nil || !strings.Contains(out, deferred) {
		return errors.Join(fmt.Errorf("a daemon polls, and xwarp doctor prints %q: %w",
			output.LastLine(out), err), r.Interrupt(d))
	}
	if err := d.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	if _, err := d.Wait(trial.Patience); err != nil {
		return err
	}
	out, err = r.Script("for i in $(seq 50); do " + look + " >/tmp/look || true; grep -q '" +
		deferred + "' /tmp/look || break; sleep 0.1; done; cat /tmp/look")
	if err != nil || strings.Contains(out, deferred) || !strings.Contains(out, "NAPI") {
		return fmt.Errorf("5 s after SIGKILL of a daemon that polled xwarp doctor prints %q: %w",
			output.LastLine(out), err)
	}
	return nil
}
