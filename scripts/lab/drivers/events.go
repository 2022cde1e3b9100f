package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"xwarp/bench/relay/impair"
	"xwarp/scripts/lab/output"
	"xwarp/scripts/lab/trial"
)

// event is something that happens to the cards or the machine during a copy.
type event struct {
	what string
	do   func(r *rig) error
	// undo restores the machine's settings after the copy; nil if there is nothing to restore.
	undo func(r *rig) error
}

var events = []event{
	{what: "sender's link down for 2 s", do: linkDown(hostA)},
	{what: "receiver's link down for 2 s", do: linkDown(hostB)},
	{what: "ethtool -G rx 128", do: ethtool("-G %s rx 128"), undo: ethtool("-G %s rx 256")},
	{what: "ethtool -L combined 2, then 1", do: channels},
	{what: "MTU 1500 to 3000", do: setMTUs(3000), undo: setMTUs(1500)},
	{what: "MTU 1500 to 1400", do: setMTUs(1400), undo: setMTUs(1500)},
	{what: "interrupts to the other processor", do: interrupts},
	{what: "machine stands still for 10 s", do: standStill},
}

// slowCable are the impairments of a cable on which the payload takes some seconds.
var slowCable = impair.Config{Rate: 4e6}

// during returns a trial that triggers an event during a copy. The copy must still succeed, and its data is compared.
func during(e event) func(*rig, string) (string, error) {
	return func(r *rig, mode string) (text string, err error) {
		defer r.heal()
		c, err := r.slowCopy(mode, slowCable)
		if err != nil {
			return "", err
		}
		defer func() { err = errors.Join(err, r.Interrupt(c.Process), r.after(e)) }()
		refused := e.do(r)
		bypassed := r.bypassed()
		if err := c.wait(); err != nil {
			return "", errors.Join(refused, bypassed, err)
		}
		if err := r.heal(); err != nil {
			return "", err
		}
		if _, err := r.copyFrom(mode); err != nil {
			return "", fmt.Errorf("the copy back: %w", err)
		}
		if refused != nil {
			return "", fmt.Errorf("%w: %w; the transfer goes on", errNotOffered, refused)
		}
		return fmt.Sprintf("%s, in %.0f s", mode, c.moved.Seconds), nil
	}
}

var errBypassed = errors.New("frames bypass the XDP program")

// bypassed returns an error if the XDP programs of a host's card, or of both members of its bond, do not see received
// frames. It checks only drivers that count the frames of the program, and hosts that have a program.
func (r *rig) bypassed() error {
	if r.kind.xdpPackets == "" {
		return nil
	}
	seen := func(host string) (string, error) {
		return r.Script("for m in " + nic + " " + secondNIC + "; do " +
			in(host, "ip link show $m") + " 2>/dev/null | grep -q prog/xdp && " +
			in(host, "ethtool -S $m") + "; done | grep '" + r.kind.xdpPackets + "' || true")
	}
	var errs []error
	var before [2]string
	for i, h := range hosts {
		var err error
		before[i], err = seen(h)
		errs = append(errs, err)
	}
	errs = append(errs, r.reachable()) // pings, so that both cards receive frames
	for i, h := range hosts {
		after, err := seen(h)
		if err == nil && after == before[i] && after != "" {
			err = fmt.Errorf("%w on %s: ethtool -S %s: %s stands still", errBypassed, h, nic,
				r.kind.xdpPackets)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (r *rig) after(e event) error {
	if e.undo == nil {
		return nil
	}
	e.undo(r) // ignores errors: if the driver refused the event, it may refuse undo too
	return r.reachable()
}

// copying is a copy in progress, with its server.
type copying struct {
	*server
	done  chan struct{} // closed when the copy has ended and moved and err are set
	moved output.Moved
	err   error
}

func (c *copying) wait() error {
	<-c.done
	return c.err
}

// slowCopy impairs the cables, starts a server and a copy to it, and returns when data moves.
func (r *rig) slowCopy(mode string, damage impair.Config) (*copying, error) {
	if err := r.mistreat(damage); err != nil {
		return nil, err
	}
	s, err := r.startServer(mode)
	if err != nil {
		return nil, r.requireMode(mode, 1500, err)
	}
	c := &copying{server: s}
	err = c.begin(r, func() (output.Moved, error) { return r.copyTo(mode) })
	if err != nil {
		return nil, errors.Join(err, r.Interrupt(s.Process))
	}
	return c, nil
}

// underWay is the number of sent frames that prove that a copy moves data.
const underWay = 200

// begin runs a copy on a goroutine and returns when data moves.
func (c *copying) begin(r *rig, run func() (output.Moved, error)) error {
	sent := func() uint64 { first, second := r.sentBy(); return first + second }
	c.done = make(chan struct{})
	before := sent()
	go func() {
		defer close(c.done)
		c.moved, c.err = run()
	}()
	for late := time.After(trial.Patience); sent() < before+underWay; {
		select {
		case <-c.done:
			return fmt.Errorf("the copy ended before anything happened: %w", c.err)
		case <-late:
			return errors.New("the copy does not begin")
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}

func linkDown(host string) func(*rig) error {
	return func(r *rig) error {
		return r.Do(fmt.Sprintf("ip -n %[1]s link set %[2]s down\nsleep 2\nip -n %[1]s link set "+
			"%[2]s up", host, nic))
	}
}

// ethtool returns an event that runs ethtool with args on the cards of both hosts.
func ethtool(args string) func(*rig) error {
	return func(r *rig) error {
		return r.onBoth("ethtool " + fmt.Sprintf(args, nic))
	}
}

func channels(r *rig) error {
	if err := ethtool("-L %s combined 2")(r); err != nil {
		return err
	}
	time.Sleep(2 * time.Second)
	return ethtool("-L %s combined 1")(r)
}

func setMTUs(mtu int) func(*rig) error {
	return func(r *rig) error {
		return r.onBoth(fmt.Sprintf("ip link set %s mtu %d", nic, mtu))
	}
}

// interrupts moves the cards' interrupts to the other processor and back, several times.
func interrupts(r *rig) error {
	return r.Do(`
for irq in $(grep -E 'virtio|eth|igb|vmxnet3' /proc/interrupts | cut -d: -f1); do
	for cpu in 2 1 2; do echo $cpu >/proc/irq/$irq/smp_affinity 2>/dev/null || true; sleep 0.2; done
done`)
}

// standStill stops the whole machine for 10 s, as a suspend or a migration does: afterwards its clock jumps.
func standStill(r *rig) error { return r.Pause(10 * time.Second) }

// rebind unbinds the receiver's card from its driver during a copy and binds it again. The copy must fail, the server
// must report that its card is gone, and later transfers must work.
func rebind(r *rig, mode string) (string, error) {
	defer r.heal()
	c, err := r.slowCopy(mode, slowCable)
	if err != nil {
		return "", err
	}
	device, err := r.Script("cat " + deviceFile + hostB)
	if err != nil {
		return "", err
	}
	device = strings.TrimSpace(device)
	begin := time.Now()
	if err := r.Do("driver=$(readlink -f /sys/bus/*/devices/" + device +
		"/driver)\necho $driver >/tmp/driver\necho " + device +
		" >$driver/unbind"); err != nil {
		return "", err
	}
	failure := c.wait()
	noticed := time.Since(begin)
	ended := r.Interrupt(c.Process)
	if err := r.Do("echo " + device + " >$(cat /tmp/driver)/bind"); err != nil {
		return "", err
	}
	if err := errors.Join(r.plug(hostB), r.setMTU(1500)); err != nil {
		return "", fmt.Errorf("after bind: %w", err)
	}
	if failure == nil {
		return "", errors.New("the copy succeeded without a card")
	}
	if ended == nil || !strings.Contains(ended.Error(), "is gone") {
		return "", fmt.Errorf("the server did not miss its card: %v", ended)
	}
	if err := r.heal(); err != nil {
		return "", err
	}
	if _, err := r.transfer(mode); err != nil {
		return "", fmt.Errorf("after bind: %w", err)
	}
	return fmt.Sprintf("%s; copy ended after %.0f s; %v", mode, noticed.Seconds(), ended), nil
}
