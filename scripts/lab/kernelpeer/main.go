// Command kernelpeer is one end of a kernel TCP connection, for tests that compare the kernel's counters with those of
// the other end.
//
//	kernelpeer listen|dial ADDRESS BYTES
//
// It reads BYTES bytes and sends as many. It sends the last byte alone, when the others are acknowledged. Then it waits
// for the other end's FIN and prints the connection's TCP_INFO as one line of JSON.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// patience is the time limit of a connection.
const patience = 2 * time.Minute

// interval is the polling interval for unacknowledged bytes.
const interval = 20 * time.Millisecond

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: kernelpeer listen|dial ADDRESS BYTES")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "kernelpeer:", err)
		os.Exit(1)
	}
}

func run(role, address, bytes string) error {
	n, err := strconv.ParseInt(bytes, 10, 64)
	if err != nil {
		return err
	}
	c, err := connect(role, address)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	if _, err := io.CopyN(io.Discard, c, n); err != nil {
		return fmt.Errorf("read %d bytes: %w", n, err)
	}
	for _, part := range []int64{n - 1, 1} {
		if _, err := c.Write(make([]byte, part)); err != nil {
			return fmt.Errorf("send %d bytes: %w", n, err)
		}
		if err := acknowledged(c.(*net.TCPConn)); err != nil {
			return err
		}
	}
	if _, err := io.Copy(io.Discard, c); err != nil {
		return fmt.Errorf("wait for the FIN: %w", err)
	}
	info, err := infoOf(c.(*net.TCPConn))
	if err != nil {
		return fmt.Errorf("TCP_INFO: %w", err)
	}
	return json.NewEncoder(os.Stdout).Encode(info)
}

func connect(role, address string) (net.Conn, error) {
	if role == "dial" {
		return net.DialTimeout("tcp", address, patience)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return l.Accept()
}

// acknowledged waits until everything sent is acknowledged. The caller sends the last byte alone: that changes a
// counter of the AccECN option, so its acknowledgement carries the option. From acknowledgements without the option the
// kernel can only estimate the counters.
func acknowledged(c *net.TCPConn) error {
	raw, err := c.SyscallConn()
	for unsent := 1; unsent > 0 && err == nil; time.Sleep(interval) {
		if e := raw.Control(func(fd uintptr) {
			unsent, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
		}); e != nil {
			err = e
		}
	}
	return err
}

func infoOf(c *net.TCPConn) (info *unix.TCPInfo, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	if e := raw.Control(func(fd uintptr) {
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	}); e != nil {
		return nil, e
	}
	return info, err
}
