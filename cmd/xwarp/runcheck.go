package main

import (
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"

	"golang.org/x/sys/unix"

	"xwarp/cmd/xwarp/doctor"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/control"
)

// versionSymbol is the symbol of the library that holds its version of the control protocol.
const versionSymbol = "xwarp_protocol"

// lookRun checks the requirements of xwarp run: its library and access to the daemon. A missing library or daemon is
// only a warning, because the host may not need xwarp run.
func lookRun() []doctor.Line {
	library, err := findLibrary()
	return []doctor.Line{lookLibrary(library, err), lookDaemon("")}
}

func lookLibrary(path string, err error) doctor.Line {
	l := doctor.Line{
		Check: "run-library", Status: doctor.OK,
		Why: "xwarp run preloads this library into programs that use libibverbs and librdmacm",
	}
	if err != nil {
		l.Status, l.What = doctor.Warn, err.Error()
		l.Remedy = "install the package; or: apt install gcc libibverbs-dev librdmacm-dev && make build"
		return l
	}
	v, err := libraryVersion(path)
	if err != nil {
		l.What = fmt.Sprintf("%s: %v", path, err)
	} else {
		l.What = fmt.Sprintf("%s uses version %d of the control protocol", path, v)
	}
	if v != control.Version {
		l.Status = doctor.Fail
		l.What += fmt.Sprintf("; this xwarp uses %d", control.Version)
		l.Remedy = "install xwarp and its library from one package, or: make build"
	}
	return l
}

// libraryVersion reads the library's version of the control protocol from its file, without loading the library.
func libraryVersion(path string) (uint32, error) {
	f, err := elf.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return 0, err
	}
	for _, s := range symbols {
		if s.Name != versionSymbol || int(s.Section) >= len(f.Sections) {
			continue
		}
		at := f.Sections[s.Section]
		var b [4]byte
		if _, err := at.ReadAt(b[:], int64(s.Value-at.Addr)); err != nil {
			return 0, err
		}
		return f.ByteOrder.Uint32(b[:]), nil
	}
	return 0, errors.New("no symbol " + versionSymbol + ": the library is old or not from xwarp")
}

func lookDaemon(path string) doctor.Line {
	l := doctor.Line{
		Check: "run-daemon", Status: doctor.OK,
		Why: "programs under xwarp run need access to the control socket of xwarpd",
	}
	path = cmp.Or(path, os.Getenv(client.SocketVariable), client.DefaultPath)
	d, err := client.Open(path)
	if err == nil {
		defer d.Close()
		l.What = "this user can connect to the daemon at " + path
		if s, err := d.Snapshot(context.Background()); err == nil {
			warnReplaced(&l, &s)
		}
		return l
	}
	l.Status, l.What = doctor.Fail, err.Error()
	var refusal *control.Error
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED):
		l.Status, l.Remedy = doctor.Warn, "systemctl start xwarpd; or set XWARP_SOCKET"
	case errors.Is(err, unix.EACCES):
		l.Remedy = "sudo usermod -aG " + socketGroup(path) + " $USER, then log in again"
	case errors.As(err, &refusal) && refusal.Code == control.CodeVersion:
		l.Remedy = "install xwarp and xwarpd from one package, then: systemctl restart xwarpd"
	}
	return l
}

// warnReplaced makes l a warning if the daemon runs a version that an upgrade has replaced on disk.
func warnReplaced(l *doctor.Line, s *control.Snapshot) {
	if s.Replaced {
		l.Status = doctor.Warn
		l.What += ", which runs the previous version: another one is installed"
		l.Remedy = "systemctl restart xwarpd"
	}
}

// socketGroup returns the name, or else the number, of the group that may open the socket. It returns xwarp if it
// cannot read the group.
func socketGroup(path string) string {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return "xwarp"
	}
	number := strconv.FormatUint(uint64(st.Gid), 10)
	if g, err := user.LookupGroupId(number); err == nil {
		return g.Name
	}
	return number
}
