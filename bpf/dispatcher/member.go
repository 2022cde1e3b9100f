package dispatcher

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"xwarp/bpf/cleaner"
)

// Priority is the priority of programs that join. It is libxdp's default. Filters usually have a lower number and run
// earlier.
const Priority = 50

// maxTries is the maximum number of attempts to change a dispatcher that another process changes at the same time.
const maxTries = 10

// Loader loads a program that replaces a function of a dispatcher.
type Loader func(dispatcher *ebpf.Program, function string) (*ebpf.Program, error)

// ErrNone is returned when the interface has no dispatcher.
var ErrNone = errors.New("bpf: the XDP program of the interface is not libxdp's dispatcher")

// OwnedError is returned if the dispatcher already runs a program of the same name that belongs to a live process.
type OwnedError struct{ Member Member }

// Error names the program.
func (e *OwnedError) Error() string {
	return fmt.Sprintf("bpf: the dispatcher already runs %s of another process", e.Member)
}

// Membership is an XDP program of this process in a dispatcher. It ends with Leave or with this process. Then a second
// process, started from the same executable, removes the XDP program. This process cannot do it itself if it has
// dropped its privileges or is killed.
type Membership struct {
	ID     uint32   // of the program
	Beside []Member // the other members when the program joined
	Native bool     // the dispatcher is attached in native mode

	ifindex int
	life    *os.File // locked as long as this process lives
	process *cleaner.Process
}

// Join adds a program to the dispatcher of an interface of the calling thread's network namespace. load loads the
// program, which must support frames of several buffers. Join removes programs of the same name whose processes ended
// without removing them. Errors: [ErrNone], [*OwnedError], [*VersionError].
func Join(ifindex int, name string, load Loader) (*Membership, error) {
	m := &Membership{ifindex: ifindex}
	self := Member{Name: name, Priority: Priority, actions: actionPass | actionNone,
		flags: unix.BPF_F_XDP_HAS_FRAGS}
	err := retry(func() error {
		return m.join(&self, func(to *ebpf.Program, function string) (*ebpf.Program, error) {
			p, err := load(to, function)
			if err != nil {
				return nil, err
			}
			if err = m.startCleaner(p); err != nil {
				p.Close()
				return nil, err
			}
			return p, nil
		})
	})
	self.prog.Close()
	if err != nil {
		return nil, errors.Join(err, m.Leave())
	}
	return m, nil
}

// join makes one attempt. It stores the loaded program in self.prog, for the next attempt.
func (m *Membership) join(self *Member, load Loader) error {
	return change(m.ifindex, func(s *State) error {
		if s == nil {
			return ErrNone
		}
		m.Beside = nil
		for _, other := range s.Members {
			switch {
			case other.Name != self.Name:
				m.Beside = append(m.Beside, other)
			case isOwned(other.ID):
				return &OwnedError{other}
			}
		}
		members := append(slices.Clone(m.Beside), *self)
		order(members)
		err := s.exchange(members, load)
		for i := range members {
			if members[i].Name == self.Name {
				self.prog = members[i].prog
			}
		}
		m.Native = s.mode == unix.XDP_FLAGS_DRV_MODE
		return err
	})
}

// leave removes a program from the dispatcher of an interface, if the dispatcher runs it, and removes its lifePath.
func leave(ifindex int, id uint32) error {
	err := retry(func() error {
		return change(ifindex, func(s *State) error {
			if s == nil {
				return nil
			}
			others := slices.DeleteFunc(slices.Clone(s.Members),
				func(m Member) bool { return m.ID == id })
			if len(others) == len(s.Members) {
				return nil
			}
			return s.exchange(others, nil)
		})
	})
	return errors.Join(err, ignoreMissing(os.Remove(lifePath(id))))
}

// retry calls change until it does not fail with EEXIST, at most maxTries times. EEXIST means that another process
// replaced the dispatcher during the change.
func retry(change func() error) (err error) {
	for range maxTries {
		if err = change(); !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
	return err
}

// change calls f with the dispatcher of an interface, or nil if there is none, while it holds the lock of lockPins.
func change(ifindex int, f func(*State) error) error {
	lock, err := lockPins()
	if err != nil {
		return err
	}
	defer lock.Close()
	s, err := read(ifindex)
	if err != nil {
		return err
	}
	if s != nil {
		defer s.close()
	}
	return f(s)
}

// ignoreMissing returns err, or nil if err says that a file does not exist.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// lifePath returns the directory that the process of the program with this ID locks as long as it lives.
func lifePath(id uint32) string {
	return filepath.Join(fileSystem(), fmt.Sprintf("xwarp-%d", id))
}

// HasOwner reports whether the process that made the program with this ID join still lives.
func HasOwner(id uint32) (bool, error) {
	lock, err := lockPins()
	if err != nil {
		return false, err
	}
	defer lock.Close()
	return isOwned(id), nil
}

// isOwned is HasOwner. If the process has ended, isOwned removes its lifePath. The caller holds the lock of lockPins.
func isOwned(id uint32) bool {
	f, err := os.Open(lifePath(id))
	if err != nil {
		return false
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return true
	}
	os.Remove(lifePath(id))
	return false
}

// startCleaner marks the program as owned, by its lifePath, and starts the second process.
func (m *Membership) startCleaner(p *ebpf.Program) error {
	info, err := p.Info()
	if err != nil {
		return err
	}
	id, _ := info.ID()
	m.ID = uint32(id)
	if err = os.Mkdir(lifePath(m.ID), 0o700); err == nil {
		m.life, err = os.Open(lifePath(m.ID))
	}
	if err == nil {
		err = unix.Flock(int(m.life.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err == nil {
		m.process, err = cleaner.Start([]string{processName, strconv.Itoa(m.ifindex),
			strconv.FormatUint(uint64(m.ID), 10)})
	}
	if err != nil {
		return fmt.Errorf("bpf: ownership of the program: %w", err)
	}
	return nil
}

// processName is the first argument of the second process.
const processName = "xwarp-dispatcher"

func init() {
	if len(os.Args) == 3 && os.Args[0] == processName {
		os.Exit(leaveAtEnd(os.Args[1], os.Args[2]))
	}
}

// leaveAtEnd is the body of the process. It returns the exit status.
func leaveAtEnd(ifindex, id string) int {
	index, err := strconv.Atoi(ifindex)
	program, err2 := strconv.ParseUint(id, 10, 32)
	if err = errors.Join(err, err2); err == nil {
		cleaner.Ready()
		io.Copy(io.Discard, os.Stdin)
		err = leave(index, uint32(program))
	}
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return 1
	}
	return 0
}

// Joined reports whether the dispatcher of the interface still runs the program. Without the privileges of Join it
// reports whether the interface has any program.
func (m *Membership) Joined() bool {
	s, err := Look(m.ifindex)
	return err != nil || s != nil &&
		slices.ContainsFunc(s.Members, func(o Member) bool { return o.ID == m.ID })
}

// Leave removes the program. If the dispatcher or the interface no longer exists, that is not an error.
func (m *Membership) Leave() error {
	if m.life != nil {
		defer m.life.Close()
	}
	if m.process == nil { // the program did not join
		return ignoreMissing(os.Remove(lifePath(m.ID)))
	}
	m.process.Pipe.Close()
	text, _ := io.ReadAll(m.process.Output)
	err := m.process.Wait()
	switch exit, _ := errors.AsType[*exec.ExitError](err); {
	case err == nil:
		return nil
	case exit != nil && exit.Exited():
		return errors.New(strings.TrimSpace(string(text)))
	}
	return leave(m.ifindex, m.ID) // the process was killed
}
