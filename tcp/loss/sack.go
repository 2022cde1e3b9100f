package loss

import (
	"xwarp/tcp/seq"
	"xwarp/tcp/tick"
)

// maxDSACK is the largest distance in bytes from the acknowledgement back to a report of duplicates, and from Nxt back
// to a selective acknowledgement, at which a block is valid.
const maxDSACK = 1 << 30

// readDSACK checks whether the first block reports duplicate bytes (RFC 2883, 4). Such a block is not a selective
// acknowledgement.
func (s *Sender) readDSACK(a *Ack) {
	if s.mode == NoSACK || a.NSACK < 1 {
		return
	}
	b := a.SACK[0]
	if b.Empty() || s.nxt.Less(b.End) || a.Ack.Diff(b.Start) > maxDSACK {
		return
	}
	if !b.End.LessEq(a.Ack) && (a.NSACK < 2 || !a.SACK[1].Covers(b)) {
		return
	}
	s.ev.dsack = true
	s.count.DSACKs++
	if s.undo.on && s.undo.marker.Less(b.End) {
		s.undo.bytes -= b.Len()
	}
}

// processSACK processes the SACK blocks. Each whole record inside a block has arrived; parts of a record do not count.
func (s *Sender) processSACK(a *Ack) {
	n := min(max(a.NSACK, 0), len(a.SACK))
	i := 0
	if s.ev.dsack {
		i = 1
	}
	// Sort the blocks, so that one acknowledgement does not look like reordering.
	b := a.SACK
	for j := i + 1; j < n; j++ {
		for k := j; k > i && b[k].Start.Less(b[k-1].Start); k-- {
			b[k], b[k-1] = b[k-1], b[k]
		}
	}
	for ; i < n; i++ {
		switch {
		case b[i].Empty() || s.nxt.Less(b[i].End) || s.nxt.Diff(b[i].Start) > maxDSACK:
			s.count.InvalidSACK++
		case s.una.Less(b[i].End):
			s.processBlock(b[i], a)
		}
	}
}

func (s *Sender) processBlock(b seq.Range, a *Ack) {
	for id := s.q.find(b.Start); id != s.q.tail; {
		r := s.q.at(id)
		if b.End.Less(r.end()) {
			return
		}
		if r.place == sacked {
			id = s.q.skip(id)
			continue
		}
		s.onArrived(r, a, false)
		s.ev.newSACK += int(r.size)
		s.q.move(id, sacked)
		if int32(id-s.lossMark) >= 0 {
			s.above += int(r.size)
			s.aboveN++
		}
		if s.partial.on && s.partial.id == id {
			s.partial.on = false
		}
		id++
	}
}

// forgetAboveMark subtracts a selectively acknowledged record from above and aboveN, if it is at or after lossMark: it
// is removed, or lossMark moves beyond it.
func (s *Sender) forgetAboveMark(id uint32, r *record) {
	if int32(id-s.lossMark) >= 0 {
		s.above -= int(r.size)
		s.aboveN--
	}
}

// checkRenege starts the renege timer when the first record is SACKed, and stops it otherwise. A peer that still had
// the record would have acknowledged it cumulatively, so it seems to have discarded it.
func (s *Sender) checkRenege(now tick.Time) {
	if s.q.len() == 0 || s.q.at(s.q.head).place != sacked {
		s.timers.renege = tick.Never
		return
	}
	if s.timers.renege == tick.Never {
		s.timers.renege = now.Add(max(s.rtt.srtt()/2, renegeWait))
	}
}
