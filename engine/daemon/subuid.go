package daemon

import (
	"bufio"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"

	"xwarp/engine/daemon/config"
)

// subordinateFile has the UID ranges of users for user namespaces, see subuid(5).
const subordinateFile = "/etc/subuid"

// subordinateUIDs maps a UID to the user that owns it. newuidmap(1) lets a user take all its subordinate UIDs, so
// limits per UID would limit nothing. The file is checked for each session and reread when it has changed.
type subordinateUIDs struct {
	file string

	mu     sync.Mutex
	stat   fs.FileInfo
	ranges []uidRange
}

// uidRange is one line of the file.
type uidRange struct {
	owner string // name or number
	first uint32
	count uint64
	// uid is the UID of owner. It is valid if isResolved.
	uid        uint32
	isResolved bool
}

// ownerOf returns the UID of the owner of the range that contains uid. Without such a range, and for UID 0, it returns
// uid itself. If the owner does not exist, or is root, whose ranges are for containers, it returns the first UID of the
// range. It does not know ranges from other sources (NSS, systemd-nspawn).
func (p *subordinateUIDs) ownerOf(uid uint32) uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refresh()
	for i := range p.ranges {
		r := &p.ranges[i]
		if uid < r.first || uint64(uid-r.first) >= r.count || uid == 0 {
			continue
		}
		if !r.isResolved {
			owner, err := config.UserID(r.owner)
			if err != nil || owner == 0 {
				owner = r.first
			}
			r.uid, r.isResolved = owner, true
		}
		return r.uid
	}
	return uid
}

// refresh reads the file if it has changed. If the file does not exist, there are no ranges; if it cannot be opened,
// the old ones stay.
func (p *subordinateUIDs) refresh() {
	st, err := os.Stat(p.file)
	if err != nil {
		p.stat, p.ranges = nil, nil
		return
	}
	if p.stat != nil && os.SameFile(st, p.stat) && st.ModTime().Equal(p.stat.ModTime()) &&
		st.Size() == p.stat.Size() {
		return
	}
	f, err := os.Open(p.file)
	if err != nil {
		return // the next session tries again
	}
	defer f.Close()
	p.stat, p.ranges = st, nil
	for lines := bufio.NewScanner(f); lines.Scan(); {
		owner, rest, _ := strings.Cut(strings.TrimSpace(lines.Text()), ":")
		from, count, _ := strings.Cut(rest, ":")
		first, err1 := strconv.ParseUint(from, 10, 32)
		n, err2 := strconv.ParseUint(count, 10, 64)
		if owner != "" && err1 == nil && err2 == nil {
			p.ranges = append(p.ranges, uidRange{owner: owner, first: uint32(first), count: n})
		}
	}
}
