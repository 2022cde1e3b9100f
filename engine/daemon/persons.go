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

// subordinateFile gives users ranges of uids for their user namespaces: subuid(5).
const subordinateFile = "/etc/subuid"

// owners say to whom a uid belongs. newuidmap(1) lets a user take each of his subordinate uids, so that limits
// of a uid alone would bound nobody. The file is read again when it has changed, and looked at once for each
// session. The zero value of read is: never.
type owners struct {
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
	// uid is to whom they belong, once known is true.
	uid        uint32
	isResolved bool
}

// ownerOf returns the uid of the person that a uid belongs to: the owner of its range, or the uid itself where there is
// none. The first uid of a range stands for its owner where that is root, whose ranges are containers of others, or
// nobody. Ranges of other kinds (NSS, systemd-nspawn) are not known here.
func (p *owners) ownerOf(uid uint32) uint32 {
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

// refresh reads the file when it is another than before.
func (p *owners) refresh() {
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
		return // once more next time
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
