package vm

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"

	"xwarp/bench/topo"
)

// Capture is a running tcpdump.
type Capture struct {
	cmd  *exec.Cmd
	File string
	done chan error
}

// Capture starts to write the frames on the machine's link that match filter (pcap-filter(7); empty means all) to file,
// in pcap format. It returns when tcpdump listens. The frames are whole and have complete checksums, as on a wire.
func (v *VM) Capture(file, filter string) (*Capture, error) {
	return capture(v.net.hub, v.tapName, file, filter)
}

// Capture is like VM.Capture, but for the link of the peer namespace. It captures at the hub's end of that link.
func (n *Network) Capture(file, filter string) (*Capture, error) {
	return capture(n.hub, hubLink, file, filter)
}

func capture(ns *topo.Namespace, link, file, filter string) (*Capture, error) {
	args := []string{"-i", link, "-n", "-p", "-U", "--immediate-mode", "-s", "0", "-B", "65536",
		"-Z", "root", "-w", file}
	if filter != "" {
		args = append(args, filter)
	}
	c := &Capture{cmd: exec.Command("tcpdump", args...), File: file, done: make(chan error, 1)}
	r, err := c.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := ns.Start(c.cmd); err != nil {
		return nil, fmt.Errorf("tcpdump: %w", err)
	}
	listening := make(chan struct{})
	var said strings.Builder
	go func() {
		for lines := bufio.NewScanner(r); lines.Scan(); {
			said.WriteString(lines.Text() + "\n")
			if strings.Contains(lines.Text(), "listening on") {
				close(listening)
			}
		}
		err := c.cmd.Wait()
		if m := droppedLine.FindStringSubmatch(said.String()); err == nil &&
			(m == nil || m[1] != "0") {
			err = errors.New("the capture lacks frames")
		}
		if err != nil {
			err = fmt.Errorf("tcpdump -i %s: %w: %s", link, err, said.String())
		}
		c.done <- err
	}()
	select {
	case <-listening:
		return c, nil
	case err := <-c.done:
		return nil, err
	case <-time.After(time.Minute):
		c.cmd.Process.Kill()
		return nil, fmt.Errorf("tcpdump -i %s did not start within a minute", link)
	}
}

var droppedLine = regexp.MustCompile(`(\d+) packets? dropped by kernel`)

// Stop waits until the file no longer grows, so that it has the frames that were sent before the call, and ends the
// capture. It returns an error if tcpdump reports that the capture lacks frames.
func (c *Capture) Stop() error {
	// When it gets the signal, tcpdump writes the frames that it has read and loses those that are still in the kernel.
	// Therefore wait until the file no longer grows: on a busy processor tcpdump needs time to read the frames.
	size := int64(-1)
	for range 60 {
		i, err := os.Stat(c.File)
		if err != nil {
			return err
		}
		if i.Size() == size {
			break
		}
		size = i.Size()
		time.Sleep(settle)
	}
	if err := c.cmd.Process.Signal(syscall.SIGINT); err != nil {
		return fmt.Errorf("stop tcpdump: %w", err)
	}
	select {
	case err := <-c.done:
		return err
	case <-time.After(time.Minute):
		c.cmd.Process.Kill()
		return fmt.Errorf("tcpdump did not end; %s may be cut short", c.File)
	}
}

// settle is the time after which a capture that has not grown counts as complete.
const settle = 500 * time.Millisecond
