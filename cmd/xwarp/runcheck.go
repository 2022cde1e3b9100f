package main

import (
	"cmp"
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

// versionSymbol is where the library says which version of the control protocol it speaks.
const versionSymbol = "xwarp_protocol"

// lookRun checks the requirements of xwarp run: its library, and a daemon that lets this user in. A missing one is no
// failure, as a host may need no such programs.
func lookRun() []doctor.Line {
	library, err := findLibrary()
	return []doctor.Line{lookLibrary(library, err), lookDaemon("")}
}

func lookLibrary(path string, err error) doctor.Line {
	l := doctor.Line{
		Check: "run-library", Status: doctor.OK,
		Why: "xwarp run preloads it, so that programs of libibverbs and librdmacm run over the daemon",
	}
	if err != nil {
		l.Status, l.What = doctor.Warn, err.Error()
		l.Remedy = "apt install gcc libibverbs-dev librdmacm-dev && make build; or install the package"
		return l
	}
	v, err := libraryVersion(path)
	if err != nil {
		l.What = fmt.Sprintf("%s: %v", path, err)
	} else {
		l.What = fmt.Sprintf("%s speaks version %d of the control protocol", path, v)
	}
	if v != control.Version {
		l.Status = doctor.Fail
		l.What += fmt.Sprintf("; this xwarp speaks %d", control.Version)
		l.Remedy = "install xwarp and its library from one package, or: make build"
	}
	return l
}

// libraryVersion reads it from the file: nothing of the library runs.
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
	return 0, errors.New("it does not say which version it speaks: it is an old one, or none of " +
		"xwarp's")
}

func lookDaemon(path string) doctor.Line {
	l := doctor.Line{
		Check: "run-daemon", Status: doctor.OK,
		Why: "programs that xwarp run starts ask the daemon for everything, by its control socket",
	}
	path = cmp.Or(path, os.Getenv(client.SocketVariable), client.DefaultPath)
	d, err := client.Open(path)
	if err == nil {
		d.Close()
		l.What = "the daemon at " + path + " lets this user in"
		return l
	}
	l.Status, l.What = doctor.Fail, err.Error()
	var refusal *control.Error
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED):
		l.Status, l.Remedy = doctor.Warn, "systemctl start xwarpd; another socket: XWARP_SOCKET"
	case errors.Is(err, unix.EACCES):
		l.Remedy = "sudo usermod -aG " + socketGroup(path) + " $USER, and log in again"
	case errors.As(err, &refusal) && refusal.Code == control.CodeVersion:
		l.Remedy = "systemctl restart xwarpd, after both are from one package"
	}
	return l
}

// socketGroup returns the group that may open the socket.
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
