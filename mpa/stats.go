package mpa

// ReceiverCounters count what a Receiver did with FPDUs and octets. An offer is one call of Offer.
type ReceiverCounters struct {
	FPDUs        uint64 // complete and right
	InOrder      uint64 // of these, placed with nothing missing in front of them
	OutByMarker  uint64 // placed behind a hole; a marker showed the start
	OutByChain   uint64 // placed behind a hole; the FPDU in front showed the start
	HeldWhole    uint64 // complete, but refused by the sink until its turn
	Spanning     uint64 // of FPDUs, those that came in more than one offer
	Delivered    uint64 // Deliver calls
	Silent       uint64 // FPDUs that needed no Deliver call
	Aligned      uint64 // offers of whole FPDUs
	Partial      uint64 // offers that ended inside an FPDU
	Unaligned    uint64 // offers that began inside an FPDU
	Behind       uint64 // offers behind a hole
	Unknown      uint64 // of these, those in which no FPDU start was known
	CRCDrops     uint64 // FPDUs with a wrong CRC that TCP is to send again
	MarkerErrors uint64 // FPDUs whose markers disagree with their place
	BadGuesses   uint64 // starts that a marker showed and the CRC did not confirm
	Suspicious   uint64 // offers refused once, because a sender that has been aligned does not send such
	LimitDrops   uint64 // octets not kept because of a limit
	AfterEnd     uint64 // octets that came after the stream had ended, with an error or without
	HeldPartial  uint64 // octets ever held because their FPDU was incomplete
	HeldUnknown  uint64 // octets ever held because no FPDU start was known
}

// ReceiverStats are the counters of a Receiver and what it holds.
type ReceiverStats struct {
	ReceiverCounters
	HeldOctets    int // octets held now
	HeldHighWater int // most octets ever held
	Records       int // records in use now: FPDUs placed and not delivered, a run of silent ones counts once
	RecordsHigh   int // most ever
	Holes         int // gaps in the stream now
}

// Stats returns the counters.
func (r *Receiver) Stats() ReceiverStats {
	s := r.stats
	s.HeldOctets, s.Records, s.Holes = r.reassembly.held, r.recordsUsed, len(r.islands)
	if r.pending.on {
		s.Records++
	}
	return s
}
