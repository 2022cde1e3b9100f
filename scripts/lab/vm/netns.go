package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"xwarp/bench/topo"
)

// Netns is a network namespace that lives as long as it is not closed and something runs in it.
type Netns struct{ *topo.Namespace }

// NewNetns creates a namespace with only lo, which is up.
func NewNetns() (*Netns, error) {
	n, err := topo.NewNamespace()
	if err != nil {
		return nil, err
	}
	return &Netns{n}, nil
}

// Path names the namespace for other processes while this one lives: nsenter --net=PATH command.
func (n *Netns) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.Fd()) }

// Run runs a program inside n and returns what it printed, standard error included, and its exit code.
// err is set only if it could not be run or did not end in time.
func (n *Netns) Run(timeout time.Duration, name string, arg ...string) (out string, code int,
	err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, arg...)
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	cmd.WaitDelay = time.Second
	if err := n.Start(cmd); err != nil {
		return "", -1, fmt.Errorf("%s: %w", name, err)
	}
	err = cmd.Wait()
	out = b.String()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return out, -1, fmt.Errorf("%s did not end within %v", name, timeout)
	case errors.As(err, &exit):
		return out, exit.ExitCode(), nil
	case err != nil:
		return out, -1, err
	}
	return out, 0, nil
}
