package script

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"xwarp/tcp/tick"
)

// same compares an errno's name with those that a script permits: A, or A|B.
func same(got, want string) error {
	if got == "" {
		got = "none"
	}
	if !slices.Contains(strings.Split(want, "|"), got) {
		return fmt.Errorf("got %s", got)
	}
	return nil
}

// call makes a socket call.
func (r *run) call(s *step) error {
	arg := func(i int, otherwise string) string {
		if i < len(s.args) {
			return s.args[i]
		}
		return otherwise
	}
	switch s.verb {
	case "listen":
		n, err := strconv.Atoi(arg(0, "16"))
		if err != nil {
			return err
		}
		return same(r.h.listen(n), "none")
	case "accept":
		return same(r.h.accept(s.flow, r.peer(s.flow)), arg(0, "none"))
	case "connect":
		return same(r.h.connect(s.flow, r.peer(s.flow)), "none")
	case "write":
		return r.write(s, arg(1, "none"))
	case "read":
		return r.read(s)
	case "shutdown":
		how := s.args[0]
		return same(r.h.shutdown(s.flow, strings.HasPrefix(how, "rd"),
			strings.HasSuffix(how, "wr")), "none")
	case "close":
		return same(r.h.closeSocket(s.flow, false), "none")
	case "abort":
		return same(r.h.closeSocket(s.flow, true), "none")
	case "set":
		v, err := strconv.Atoi(s.args[1])
		if err != nil {
			return err
		}
		return r.h.set(s.flow, s.args[0], v)
	}
	return fmt.Errorf("nobody does this")
}

func (r *run) write(s *step, want string) error {
	n, err := strconv.Atoi(s.args[0])
	if err != nil {
		return err
	}
	done, errno := r.h.write(s.flow, pattern(1+r.wrote[s.flow], n))
	r.wrote[s.flow] += done
	if err := same(errno, want); err != nil {
		return err
	}
	if errno == "" && done != n {
		return fmt.Errorf("took %d bytes", done)
	}
	return nil
}

func (r *run) read(s *step) error {
	if s.args[0] == "all" {
		for n := 0; ; {
			b, _ := r.h.read(s.flow, 1<<16)
			if len(b) == 0 && n == 0 {
				return fmt.Errorf("there is nothing")
			}
			if at, ok := checkPattern(b, 1+r.gotten[s.flow]); !ok {
				return fmt.Errorf("byte %d is wrong", at)
			}
			n += len(b)
			r.gotten[s.flow] += len(b)
			if len(b) == 0 {
				return nil
			}
		}
	}
	n, err := strconv.Atoi(s.args[0])
	if err != nil {
		b, errno := r.h.read(s.flow, 1<<16)
		switch {
		case len(b) > 0:
			return fmt.Errorf("got %d bytes", len(b))
		case errno == "":
			errno = "eof"
		case errno == "EAGAIN":
			errno = "again"
		}
		return same(errno, s.args[0])
	}
	// Each call of the kernel returns the available data. The bytes of several segments may need several calls.
	for left := n; left > 0; {
		b, errno := r.h.read(s.flow, left)
		if len(b) == 0 {
			return fmt.Errorf("got %d bytes, then %s", n-left, errno)
		}
		if at, ok := checkPattern(b, 1+r.gotten[s.flow]); !ok {
			return fmt.Errorf("byte %d is wrong", at)
		}
		left -= len(b)
		r.gotten[s.flow] += len(b)
	}
	return nil
}

// ask compares the state, the error or a field of TCP_INFO.
func (r *run) ask(s *step) error {
	switch s.verb {
	case "state":
		got := r.h.state(s.flow)
		if s.args[0] == "TIME-WAIT" && got == "CLOSED" {
			return nil // in TIME-WAIT a socket no longer belongs to the caller, so the kernel reports CLOSED
		}
		return same(got, s.args[0])
	case "error":
		return same(r.h.lastError(s.flow), s.args[0])
	}
	word := s.args[1]
	if i := slices.Index(caNames[:], word); i >= 0 {
		word = strconv.Itoa(i)
	}
	want, err := parseValue(word)
	if err != nil {
		return err
	}
	all, err := r.h.info(s.flow)
	if err != nil {
		return err
	}
	got, ok := all[s.args[0]]
	if !ok {
		return fmt.Errorf("there is no such field")
	}
	if !want.matches(got, r.flow(s.flow).x) {
		return fmt.Errorf("got %d", got)
	}
	return nil
}

var caNames = [...]string{"open", "disorder", "cwr", "recovery", "loss"}

// Congestion states in info, with Linux's numbers.
const (
	caOpen = iota
	caDisorder
	caCWR
	caRecovery
	caLoss
)

func ms(d tick.Duration) int { return int(d / tick.Millisecond) }
