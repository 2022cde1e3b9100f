package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"xwarp/scripts/lab/proto"
)

// server carries out the host's requests. Commands run in goroutines of their own; mu orders what they send.
type server struct {
	mu   sync.Mutex
	out  *json.Encoder
	pids map[uint64]int // running commands: request id to process group
}

// serve answers the host until the port closes or the host says halt.
func serve() error {
	port, err := openPort(proto.PortName)
	if err != nil {
		return err
	}
	s := &server{out: json.NewEncoder(port), pids: map[uint64]int{}}
	s.send(proto.Event{Kind: proto.KindReady})
	in := json.NewDecoder(port)
	for {
		var r proto.Request
		if err := in.Decode(&r); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("read a request: %w", err)
		}
		if r.Op == proto.OpHalt {
			return nil
		}
		s.handle(&r)
	}
}

// openPort finds the virtio-serial port by its name and opens it for blocking I/O.
func openPort(name string) (*os.File, error) {
	files, _ := filepath.Glob("/sys/class/virtio-ports/*/name")
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil || strings.TrimSpace(string(text)) != name {
			continue
		}
		dev := "/dev/" + filepath.Base(filepath.Dir(f))
		fd, err := unix.Open(dev, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", dev, err)
		}
		return os.NewFile(uintptr(fd), dev), nil
	}
	return nil, fmt.Errorf("no virtio-serial port is named %s", name)
}

// send reports one event. Without a host to report to there is nothing left to do, and the reader sees that too.
func (s *server) send(e proto.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out.Encode(e)
}

func (s *server) handle(r *proto.Request) {
	switch r.Op {
	case proto.OpStart:
		s.start(r)
	case proto.OpSignal:
		s.mu.Lock()
		pid, running := s.pids[r.ID]
		s.mu.Unlock()
		if running {
			unix.Kill(-pid, unix.Signal(r.Signal))
		}
	default:
		s.fail(r.ID,
			fmt.Errorf("unknown request %q: is the initrd older than the host's side?", r.Op))
	}
}

func (s *server) fail(id uint64, err error) {
	s.send(proto.Event{ID: id, Kind: proto.KindError, Text: err.Error()})
}

// start runs r.Command. Its output goes through one pipe, read until every process that holds it has closed it.
func (s *server) start(r *proto.Request) {
	cmd := exec.Command("/bin/sh", "-c", r.Command)
	cmd.Dir = "/root"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stdout = outputWriter{s, r.ID}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		s.fail(r.ID, err)
		return
	}
	s.mu.Lock()
	s.pids[r.ID] = cmd.Process.Pid
	s.mu.Unlock()
	go func() {
		cmd.Wait()
		s.mu.Lock()
		delete(s.pids, r.ID)
		s.mu.Unlock()
		s.send(proto.Event{ID: r.ID, Kind: proto.KindExit, Code: exitCode(cmd.ProcessState)})
	}()
}

func exitCode(p *os.ProcessState) int {
	if status, ok := p.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return p.ExitCode()
}

// outputWriter sends what a command prints.
type outputWriter struct {
	s  *server
	id uint64
}

func (w outputWriter) Write(b []byte) (int, error) {
	w.s.send(proto.Event{ID: w.id, Kind: proto.KindOutput, Data: b})
	return len(b), nil
}
