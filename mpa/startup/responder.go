package startup

import (
	"bytes"
	"fmt"

	"xwarp/mpa/ulpdu"
)

// Request is the peer's request, shown to the consumer of a Responder.
type Request struct {
	Revision Revision
	Version  uint8 // of DDP and RDMAP, if the consumer accepts
	Enhanced bool  // RFC 6581
	Markers  bool  // in the stream that this endpoint sends
	// IRD and ORD of the peer, from RFC 6581 or [MS-SMBD]; NotNegotiated otherwise.
	IRD, ORD    uint16
	PeerToPeer  bool // the peer will send an RTR message
	RTRs        RTR  // the set of RTR messages that the peer can send
	PrivateData []byte
}

// Answer is the consumer's answer to a Request.
type Answer struct {
	PrivateData []byte
	// IRD and ORD are the numbers of RDMA Reads that this endpoint accepts and sends at a time. The exchange lowers ORD
	// to the peer's IRD. In a rejection, ORD is the number that would be needed.
	IRD, ORD uint16
}

// Responder is the side that waits for the Request (RFC 5044, 7.1.2). Call Init, pass bytes to Input until the stage is
// StageDecide, show Request to the consumer, call Accept or Reject, and send Output. In full operation it must receive
// an FPDU before it sends one, unless Params.RtrFrame is set. The zero value must be initialised.
type Responder struct {
	endpoint
	request  Request
	received frame // the Request, without its data
	hasSMBD  bool  // the Request had the header of [MS-SMBD]
}

// Init prepares r. The error names the wrong field of cfg.
func (r *Responder) Init(cfg Config) error {
	if err := cfg.check(); err != nil {
		return err
	}
	*r = Responder{endpoint: endpoint{cfg: cfg, stage: StageAwaitRequest}}
	return nil
}

// Input accepts bytes of the stream and returns how many belong to the start-up. The rest belongs to full operation.
// After an error the connection must be closed at once, after Output if that has a frame.
func (r *Responder) Input(b []byte) (n int, err *ulpdu.Error) {
	switch r.stage {
	case StageAwaitRequest:
		n, f, done, err := r.reader.read(b, requestFrame)
		if err == nil && done {
			err = r.handleRequest(&f)
		}
		if err == nil && n < len(b) {
			err = startupError("%d bytes follow the Request before the Reply was sent", len(b)-n)
		}
		if err != nil {
			return n, r.fail(err)
		}
		return n, nil
	case StageDecide:
		if len(b) > 0 {
			return 0, r.fail(startupError("%d bytes follow the Request before the Reply was sent",
				len(b)))
		}
	case StageAwaitRtr:
		n, _, done, err := r.reader.read(b, rtrFrame)
		if err != nil {
			return n, r.fail(err)
		}
		if done {
			r.stage = StageEstablished
		}
		return n, nil
	}
	return 0, r.err
}

// Request returns the peer's request. It is valid from StageDecide on.
func (r *Responder) Request() *Request { return &r.request }

// handleRequest checks a complete Request and shows it to the consumer.
func (r *Responder) handleRequest(f *frame) *ulpdu.Error {
	r.received = *f
	r.received.data = nil
	r.cfg.Markers = r.cfg.Markers && (f.markers || !r.cfg.MirrorMarkers)
	q := &r.request
	*q = Request{Revision: f.rev, Version: 1, Markers: f.markers, IRD: NotNegotiated,
		ORD: NotNegotiated, PrivateData: bytes.Clone(f.data)}
	switch {
	case r.cfg.Role == RDMAC:
		q.Version, q.Markers = 0, true // it answers with revision 0 in any case
	case f.rev == RevRDMAC && r.cfg.Role == NonPermissive:
		r.queueFrame(&frame{kind: replyFrame, rev: RevIETF, markers: r.cfg.Markers,
			crc: !r.cfg.NoCRC})
		return startupError("the peer uses the RDMA Consortium's version 0, which this role "+
			"(%v) does not support", r.cfg.Role)
	case f.rev == RevRDMAC:
		q.Version, q.Markers = 0, true
	case f.rev > r.cfg.revision():
		return startupError("Request with revision %d, this side supports revisions up to %d",
			f.rev, r.cfg.revision())
	case f.rev == RevEnhanced && f.sFlag:
		e, rest, ok := parseEnhanced(q.PrivateData)
		if !ok {
			return startupError("Request with S set and %d bytes of private data, less than RFC "+
				"6581's four", len(f.data))
		}
		q.Enhanced, q.PrivateData = true, rest
		q.IRD, q.ORD, q.PeerToPeer, q.RTRs = e.ird, e.ord, e.peerToPeer, e.rtrs
	case f.rev == RevIETF && r.cfg.SMBD:
		ird, ord, rest, ok := ParseSMBD(q.PrivateData)
		if r.hasSMBD = ok; ok {
			q.IRD, q.ORD, q.PrivateData = clamp14(ird), clamp14(ord), rest
		}
	}
	r.stage = StageDecide
	return nil
}

// Accept accepts the Request. If it returns an error, the stage is unchanged.
func (r *Responder) Accept(a Answer) error {
	f, e, err := r.makeReply(&a, false)
	if err != nil {
		return err
	}
	p := &r.params
	p.setFraming(&r.cfg, &r.received)
	p.IRD, p.ORD = a.IRD, a.ORD
	p.Negotiated = r.request.Enhanced || r.hasSMBD
	if r.request.IRD != NotNegotiated {
		p.ORD = min(p.ORD, r.request.IRD)
	}
	if p.PeerToPeer = r.request.PeerToPeer; p.PeerToPeer {
		if p.RTR = e.rtrs; p.RTR == RTRRead {
			p.IRD = max(p.IRD, 1)
		}
	}
	r.stage = StageEstablished
	if f.sFlag && f.rev == RevIETF {
		p.RtrFrame = true
		r.stage = StageAwaitRtr
		r.reader = frameReader{}
	}
	r.queueFrame(f)
	return nil
}

// Reject rejects the Request; TCP stays open. Revision 0 has no rejection: there is no Output then, and the connection
// must be closed. If it returns an error, the stage is unchanged.
func (r *Responder) Reject(a Answer) error {
	f, _, err := r.makeReply(&a, true)
	if err != nil {
		return err
	}
	r.stage = StageRejected
	if f.rev != RevRDMAC {
		r.queueFrame(f)
	}
	return nil
}

// makeReply returns the Reply and its RFC 6581 data.
func (r *Responder) makeReply(a *Answer, reject bool) (*frame, enhanced, error) {
	var e enhanced
	if r.stage != StageDecide {
		return nil, e, fmt.Errorf("mpa: no Request to answer: %v", r.stage)
	}
	if a.IRD > NotNegotiated || a.ORD > NotNegotiated {
		return nil, e, fmt.Errorf("mpa: IRD %d and ORD %d must be at most %d", a.IRD, a.ORD,
			NotNegotiated)
	}
	q, p := &r.request, &r.params
	*p = Params{Revision: q.Revision, Version: q.Version, PeerIRD: q.IRD, PeerORD: q.ORD,
		PrivateData: q.PrivateData}
	f := &frame{kind: replyFrame, rev: q.Revision, markers: r.cfg.Markers, crc: !r.cfg.NoCRC,
		rejected: reject}
	if reject { // no markers follow a rejection; the M of the Request, repeated, shows that markers were not the reason
		f.markers = r.received.markers
	}
	var head []byte
	switch {
	case q.Version == 0:
		f.rev, f.markers, f.crc, f.rejected = RevRDMAC, true, true, false
	case q.Enhanced:
		e = r.enhancedReply(a, reject)
		f.sFlag, f.longFPDUs = true, r.cfg.LongFPDUs && r.received.longFPDUs && !reject
		head = e.appendTo(nil)
	case r.hasSMBD:
		ord := a.ORD
		if !reject {
			ord = min(ord, q.IRD)
		}
		head = AppendSMBD(nil, uint32(max(1, a.IRD)), uint32(max(1, ord)))
	}
	if q.Revision == RevIETF && q.Version == 1 {
		f.sFlag = r.cfg.RtrFrame && r.received.sFlag && !reject
	}
	var err error
	f.data, err = limitData(append(head, a.PrivateData...), len(a.PrivateData))
	return f, e, err
}

// enhancedReply returns the RFC 6581 data of the Reply (9.1 and 9.2).
func (r *Responder) enhancedReply(a *Answer, reject bool) enhanced {
	q := &r.request
	e := enhanced{peerToPeer: q.PeerToPeer, ird: a.IRD, ord: a.ORD}
	if q.PeerToPeer {
		own := r.cfg.RTRs
		if own == 0 {
			own = allRTR
		}
		// Exactly one message: some initiators take a second bit for a mismatch.
		if e.rtrs = (q.RTRs & own).preferred(); e.rtrs == 0 {
			e.rtrs = own.preferred()
		}
		if e.rtrs == RTRRead {
			e.ird = max(e.ird, 1)
		}
	}
	if q.ORD == NotNegotiated {
		e.ird = NotNegotiated
	}
	switch {
	case q.IRD == NotNegotiated:
		e.ord = NotNegotiated
	case !reject:
		e.ord = min(e.ord, q.IRD)
	}
	return e
}
