package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// maxAncestors limits the number of ancestors to search.
const maxAncestors = 32

// operatorSession returns the local address of the SSH session in which a process was started by hand, or the zero Addr
// if there is none. It reads SSH_CONNECTION from the environment of the process or of its nearest ancestor that has it,
// since sudo removes the variable. proc is the path of /proc.
func operatorSession(proc string, pid int) netip.Addr {
	for range maxAncestors {
		dir := filepath.Join(proc, strconv.Itoa(pid))
		environ, _ := os.ReadFile(filepath.Join(dir, "environ")) // may be unreadable for processes of other users
		for v := range strings.SplitSeq(string(environ), "\x00") {
			if text, ok := strings.CutPrefix(v, "SSH_CONNECTION="); ok {
				return serverAddress(text)
			}
		}
		if pid = parent(dir); pid <= 1 {
			break
		}
	}
	return netip.Addr{}
}

// serverAddress returns the server's address in SSH_CONNECTION, which has the address and port of the client, then
// those of the server.
func serverAddress(text string) netip.Addr {
	words := strings.Fields(text)
	if len(words) != 4 {
		return netip.Addr{}
	}
	a, _ := netip.ParseAddr(words[2])
	return a
}

// parent returns the parent's PID from proc_pid_stat(5), or 0 if there is none.
func parent(dir string) int {
	b, _ := os.ReadFile(filepath.Join(dir, "stat"))
	text := string(b)
	words := strings.Fields(text[strings.LastIndexByte(text, ')')+1:]) // the program name in (...) may contain anything
	if len(words) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(words[1])
	return n
}
