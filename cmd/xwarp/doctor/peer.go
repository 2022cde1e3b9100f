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
	why: "on a veth pair with checksum offload nobody computes the TCP checksum, and xwarp drops " +
		"segments with a wrong checksum",
	look: func(e *env) finding {
		if e.nic.Type() != "veth" {
			return fine("%s is not a veth", e.name())
		}
		var f finding
		err := e.onPeer(func(peer, enter string) error {
			m, err := ethtool.Features(peer)
			if err != nil {
				return err
			}
			f = fine("peer %s computes checksums", peer)
			if m[txChecksum].On {
				f = warn("peer %s omits checksums: segments of its kernel "+
					"TCP are dropped", peer).advise("%sethtool -K %s tx off", enter, peer)
			}
			return nil
		})
		if err != nil {
			return warn("cannot check the veth peer: %v", err).
				advise("in its network namespace: ethtool -K PEER tx off")
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

// onPeer calls f in the network namespace of the veth's peer, with the name of the peer. enter is the prefix of a
// command line to run there; it is empty for the current namespace.
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
		runtime.LockOSThread() // never unlocked: the thread ends in the other namespace
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			result <- err
			return
		}
		result <- call("nsenter --net=" + file + " ")
	}()
	return <-result
}

// findNamespace opens the network namespace with an nsid of the current one: that of a process or a named one. file is
// its path.
func findNamespace(id int) (fd int, file string, err error) {
	seen := map[uint64]bool{}
	for _, pattern := range []string{"/run/netns/*", "/run/docker/netns/*", "/proc/[0-9]*/ns/net",
		"/proc/[0-9]*/fd/*"} {
		files, _ := filepath.Glob(pattern)
		for _, file = range files {
			if link, err := os.Readlink(file); err == nil && !strings.HasPrefix(link, "net:[") {
				continue // not a network namespace
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
	return -1, "", errors.New("no visible process or name refers to its network namespace")
}
