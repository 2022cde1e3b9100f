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

// Capture writes the frames on the machine's link that match filter (pcap-filter(7); empty = all) to file, in
// pcap format, and returns when tcpdump listens. The frames are those of the wire: whole, and with their
// checksums.
func (v *VM) Capture(file, filter string) (*Capture, error) {
	return capture(v.net.hub, v.tapName, file, filter)
}

// Capture does the same on the hub's end of the peer namespace's link.
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

// Stop ends the capture once the frames sent before the call are in the file.
func (c *Capture) Stop() error {
	// On the signal tcpdump writes the frames that it has read; those still in the kernel are lost. On a busy processor
	// reading takes a while.
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

// settle is how long a capture must not grow to count as complete.
const settle = 500 * time.Millisecond
