package mpa

// ReceiverCounters count FPDUs and bytes by the Receiver's action on them. An offer is one call of Offer.
type ReceiverCounters struct {
	FPDUs        uint64 // complete and correct
	InOrder      uint64 // of FPDUs, placed with nothing missing in front of them
	OutByMarker  uint64 // of FPDUs, placed behind a hole; a marker showed the start
	OutByChain   uint64 // of FPDUs, placed behind a hole; the FPDU in front showed the start
	HeldWhole    uint64 // FPDUs complete, but not placed by the sink before their turn
	Spanning     uint64 // of FPDUs, those that arrived in more than one offer
	Delivered    uint64 // Deliver calls
	Silent       uint64 // FPDUs that needed no Deliver call
	Aligned      uint64 // offers of whole FPDUs
	Partial      uint64 // offers that ended inside an FPDU
	Unaligned    uint64 // offers that began inside an FPDU
	Behind       uint64 // offers behind a hole
	Unknown      uint64 // of Behind, offers in which no FPDU start was known
	CRCDrops     uint64 // FPDUs with a wrong CRC or length, refused so that TCP sends them again
	MarkerErrors uint64 // FPDUs whose markers disagree with the length chain
	BadGuesses   uint64 // starts that a marker showed and no complete FPDU confirmed
	LimitDrops   uint64 // bytes not kept because of a limit
	AfterEnd     uint64 // bytes that arrived after the stream had ended, with an error or without
	HeldPartial  uint64 // bytes ever held because their FPDU was incomplete
	HeldUnknown  uint64 // bytes ever held because no FPDU start was known
}

// ReceiverStats are the counters of a Receiver and its current use of memory.
type ReceiverStats struct {
	ReceiverCounters
	HeldBytes     int // bytes held now
	HeldHighWater int // most bytes ever held
	Records       int // records in use now: FPDUs complete and not delivered; consecutive silent ones count once
	RecordsHigh   int // most records ever in use
	Holes         int // gaps in the stream now
}

// Stats returns the counters.
func (r *Receiver) Stats() ReceiverStats {
	s := r.stats
	s.HeldBytes, s.Records, s.Holes = r.reassembly.held, r.recordsUsed, len(r.islands)
	if r.pending.on {
		s.Records++
	}
	return s
}
