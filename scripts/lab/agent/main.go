// Command agent is the init program of the lab's virtual machines. As process 1 it mounts the root file system that the
// host shares over 9p, with an in-memory overlay, and switches to it. Its child then runs the host's commands (see
// package proto). When the host closes the virtio-serial port of these commands, the machine powers off.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"
)

// childArg is the argument that makes the agent run as the child that serves the host.
const childArg = "serve"

func main() {
	if len(os.Args) > 1 && os.Args[1] == childArg {
		if err := serve(); err != nil {
			fmt.Fprintln(os.Stderr, "agent:", err)
			os.Exit(1)
		}
		return
	}
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "agent: this program is the init of the lab's virtual machines; "+
			"it does nothing elsewhere")
		os.Exit(2)
	}
	if err := initSystem(); err != nil {
		fmt.Fprintln(os.Stderr, "agent: init:", err)
	}
	unix.Sync()
	time.Sleep(100 * time.Millisecond) // the console still prints its last lines
	unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// initSystem prepares the machine and returns when the serving child has ended.
func initSystem() error {
	if err := mountAll(early); err != nil {
		return err
	}
	if err := loadModules("/modules"); err != nil {
		return err
	}
	if err := enterRoot(); err != nil {
		return err
	}
	if err := mountAll(late); err != nil {
		return err
	}
	os.Setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
	os.Setenv("HOME", "/root")
	os.Setenv("LC_ALL", "C")
	child := exec.Command("/proc/self/exe", childArg)
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	if err := child.Start(); err != nil {
		return fmt.Errorf("start the serving process: %w", err)
	}
	return reap(child.Process.Pid)
}

// reap waits for all children and orphans until the process pid has ended. It returns an error if pid failed.
func reap(pid int) error {
	for {
		var status unix.WaitStatus
		got, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return fmt.Errorf("wait4: %w", err)
		case got == pid && status.ExitStatus() != 0:
			return fmt.Errorf("the serving process ended with status %d", status.ExitStatus())
		case got == pid:
			return nil
		}
	}
}
