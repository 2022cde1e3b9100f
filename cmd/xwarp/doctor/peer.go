package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"xwarp/engine/host/ethtool"
)

const txChecksum = "tx-checksum-ip-generic"

var peerCheck = check{
	name: "veth-peer-checksum", nic: true,
	why: "over veth a kernel leaves the TCP checksum to hardware that is not there, and xwarp " +
		"drops what has a wrong checksum",
	look: func(e *env) finding {
		if e.nic.Type() != "veth" {
			return fine("%s is no veth", e.name())
		}
		var f finding
		err := e.onPeer(func(peer, enter string) error {
			m, err := ethtool.Features(peer)
			if err != nil {
				return err
			}
			f = fine("the peer %s computes them", peer)
			if m[txChecksum].On {
				f = warn("the peer %s leaves them out: frames of its "+
					"kernel's TCP are dropped", peer).advise("%sethtool -K %s tx off", enter, peer)
			}
			return nil
		})
		if err != nil {
			return warn("the peer cannot be seen: %v", err).
				advise("in its namespace: ethtool -K PEER tx off")
		}
		return f
	},
	save: func(*env) (settings, error) { return settings{txChecksum: "on"}, nil },
	fix:  func(e *env) error { return e.setPeerChecksum(false) },
	undo: func(e *env, _ settings) error { return e.setPeerChecksum(true) },
}

func (e *env) setPeerChecksum(on bool) error {
	return e.onPeer(func(peer, _ string) error {
		return ethtool.SetFeature(peer, txChecksum, on)
	})
}

// onPeer calls f in the namespace of the veth's other end, with its name there. enter begins a command line that is
// to run in that namespace; it is empty when that is the present one.
func (e *env) onPeer(f func(name, enter string) error) error {
	a := e.nic.Attrs()
	call := func(enter string) error {
		l, err := netlink.LinkByIndex(a.ParentIndex)
		if err != nil {
			return err
		}
		return f(l.Attrs().Name, enter)
	}
	if a.NetNsID < 0 {
		return call("")
	}
	fd, file, err := findNamespace(a.NetNsID)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends in the other namespace
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			result <- err
			return
		}
		result <- call("nsenter --net=" + file + " ")
	}()
	return <-result
}

// findNamespace opens the network namespace that this one knows by id: one of a process, or one with a name. file is
// its path.
func findNamespace(id int) (fd int, file string, err error) {
	seen := map[uint64]bool{}
	for _, pattern := range []string{"/run/netns/*", "/run/docker/netns/*", "/proc/[0-9]*/ns/net",
		"/proc/[0-9]*/fd/*"} {
		files, _ := filepath.Glob(pattern)
		for _, file = range files {
			if link, err := os.Readlink(file); err == nil && !strings.HasPrefix(link, "net:[") {
				continue // another descriptor
			}
			var st unix.Stat_t
			if unix.Stat(file, &st) != nil || seen[st.Ino] || st.Mode&unix.S_IFMT != unix.S_IFREG {
				continue
			}
			var fs unix.Statfs_t
			if unix.Statfs(file, &fs) != nil || fs.Type != unix.NSFS_MAGIC {
				continue
			}
			seen[st.Ino] = true
			if fd, err = unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
				continue
			}
			if got, err := netlink.GetNetNsIdByFd(fd); err == nil && got == id {
				return fd, file, nil
			}
			unix.Close(fd)
		}
	}
	return -1, "", errors.New("it is in a namespace that no process that can be seen is in")
}
