package startup

import (
	"bytes"

	"xwarp/mpa/ulpdu"
)

// Initiator is the side that sends the Request (RFC 5044, 7.1.2). Call Init, send Output, pass bytes to Input until the
// stage is StageEstablished, and send Output again. The zero value must be initialised.
type Initiator struct {
	endpoint
	terminate *ulpdu.Error
	retry     Retry
}

// Init prepares i, with the Request as Output. The error names the wrong field of cfg.
func (i *Initiator) Init(cfg Config) error {
	if err := cfg.check(); err != nil {
		return err
	}
	*i = Initiator{endpoint: endpoint{cfg: cfg, stage: StageAwaitReply}}
	i.params = Params{IRD: cfg.IRD, ORD: cfg.ORD, PeerIRD: NotNegotiated, PeerORD: NotNegotiated}
	f := frame{kind: requestFrame, rev: cfg.revision(), markers: cfg.Markers, crc: !cfg.NoCRC}
	var head []byte
	switch f.rev {
	case RevRDMAC:
		f.markers, f.crc = true, true
	case RevIETF:
		f.sFlag = cfg.RtrFrame
		if cfg.SMBD {
			head = AppendSMBD(nil, uint32(max(1, cfg.IRD)), uint32(max(1, cfg.ORD)))
		}
	case RevEnhanced:
		f.sFlag, f.longFPDUs = true, cfg.LongFPDUs
		e := enhanced{peerToPeer: cfg.RTRs != 0, rtrs: cfg.RTRs, ird: cfg.IRD, ord: cfg.ORD}
		head = e.appendTo(nil)
	}
	var err error
	if f.data, err = limitData(append(head, cfg.PrivateData...), len(cfg.PrivateData)); err != nil {
		return err
	}
	i.queueFrame(&f)
	return nil
}

// Input accepts bytes of the stream and returns how many belong to the start-up. The rest belongs to full operation.
// After an error the caller sends the Terminate that the method Terminate returns, if there is one, and closes the
// connection at once.
func (i *Initiator) Input(b []byte) (n int, err *ulpdu.Error) {
	if i.stage != StageAwaitReply {
		return 0, i.err
	}
	n, f, done, err := i.reader.read(b, replyFrame)
	if err != nil {
		return n, i.fail(err)
	}
	if done {
		err = i.handleReply(&f)
	}
	return n, err
}

// PeerClosed is Closed for a peer that answered the Request with a FIN or RST. That may mean that the peer does not
// support the Request: Retry then returns what to change, or RetryNone if nothing can be changed. For other ends, such
// as a failed handshake, a broken path or a timeout, call Closed.
func (i *Initiator) PeerClosed(why string) *ulpdu.Error {
	if i.stage == StageAwaitReply && i.reader.n == 0 {
		switch { // RFC 6581, 10: a responder that does not support a frame closes without a Reply
		case i.cfg.revision() == RevEnhanced:
			i.retry = RetryRevision1
		case i.cfg.revision() == RevIETF && i.cfg.Markers:
			i.retry = RetryNoMarkers
		}
	}
	return i.endpoint.Closed(why)
}

// Terminate returns the Terminate to send to the peer, or nil. It is not nil if the Reply asks for something that this
// endpoint cannot do (RFC 6581, 9); the stage is StageFailed then. Params describe how to send the Terminate, as the
// only FPDU before closing.
func (i *Initiator) Terminate() *ulpdu.Error { return i.terminate }

// Retry returns the change with which to try again on another connection, after StageRejected or StageFailed.
func (i *Initiator) Retry() Retry { return i.retry }

func (i *Initiator) handleReply(f *frame) *ulpdu.Error {
	sent, p := i.cfg.revision(), &i.params
	p.Revision, p.Version = f.rev, 1
	p.PrivateData = bytes.Clone(f.data)
	isEnhanced := f.rev == RevEnhanced && f.sFlag
	var e enhanced
	if isEnhanced {
		var ok bool
		if e, p.PrivateData, ok = parseEnhanced(p.PrivateData); !ok {
			return i.fail(startupError("Reply with S set and %d bytes of private data, less "+
				"than RFC 6581's four", len(f.data)))
		}
		p.PeerIRD, p.PeerORD = e.ird, e.ord
	}
	if f.rejected && f.rev != RevRDMAC {
		i.stage = StageRejected
		i.applySMBD(f)
		switch {
		case i.cfg.Markers && !f.markers && len(p.PrivateData) == 0:
			// Linux's soft-iWARP rejects like this when it is asked for markers. A rejection with M is the consumer's.
			i.retry = RetryNoMarkers
		case sent == RevEnhanced && f.rev == RevIETF:
			i.retry = RetryRevision1
		}
		return nil
	}
	switch {
	case f.rev > RevEnhanced:
		return i.fail(startupError("Reply with revision %d; revisions up to 2 are known", f.rev))
	case f.rev == RevRDMAC && i.cfg.Role == NonPermissive:
		return i.fail(startupError("the peer uses the RDMA Consortium's version 0, which this "+
			"role (%v) does not support", i.cfg.Role))
	case f.rev != RevRDMAC && i.cfg.Role == RDMAC:
		return i.fail(startupError("the peer replied with revision %d; this role (%v) supports "+
			"version 0 only", f.rev, i.cfg.Role))
	case f.rev == RevRDMAC:
		p.Version = 0
	case sent == RevEnhanced && !isEnhanced:
		i.retry = RetryRevision1
		return i.fail(startupError("the Request was enhanced (RFC 6581), the Reply of revision "+
			"%d is not", f.rev))
	case sent != RevEnhanced && isEnhanced:
		return i.fail(startupError("the Request was not enhanced (RFC 6581), the Reply is"))
	}
	p.setFraming(&i.cfg, f)
	i.stage = StageEstablished
	if isEnhanced {
		return i.applyEnhanced(&e)
	}
	i.applySMBD(f)
	if f.rev == RevIETF && f.sFlag && i.cfg.RtrFrame {
		p.RtrFrame = true
		i.queueFrame(&frame{kind: rtrFrame, rev: RevIETF})
	}
	return nil
}

// applyEnhanced adopts the responder's IRD, ORD and RTR message (RFC 6581, 9.1 and 9.2).
func (i *Initiator) applyEnhanced(e *enhanced) *ulpdu.Error {
	p := &i.params
	p.Negotiated = true
	if e.ird != NotNegotiated {
		p.ORD = min(p.ORD, e.ird)
	}
	if e.ord != NotNegotiated && e.ord > p.IRD {
		return i.failWithTerminate(ulpdu.CodeIRD,
			"the responder may send up to %d concurrent RDMA Reads; this "+
				"side accepts %d", e.ord, p.IRD)
	}
	if i.cfg.RTRs == 0 {
		return nil
	}
	p.PeerToPeer = true
	both, hint := e.rtrs&i.cfg.RTRs, ""
	if both&RTRRead != 0 && e.ird == 0 { // ORD is at most the responder's IRD (9.1): no Read may be sent
		both &^= RTRRead
		hint = "; its IRD of 0 leaves no room for the Read"
	}
	if p.RTR = both.preferred(); p.RTR == 0 {
		return i.failWithTerminate(ulpdu.CodeRTR,
			"the responder accepts the RTR messages %v; this side can send %v%s",
			e.rtrs, i.cfg.RTRs, hint)
	}
	return nil
}

// failWithTerminate fails with an error that a Terminate reports to the peer.
func (i *Initiator) failWithTerminate(code uint8, format string, args ...any) *ulpdu.Error {
	i.terminate = ulpdu.Newf(ulpdu.MPA, 0, code, format, args...)
	return i.fail(i.terminate)
}

// applySMBD adopts the IRD and ORD of [MS-SMBD] in a Reply of revision 1.
func (i *Initiator) applySMBD(f *frame) {
	if !i.cfg.SMBD || f.rev != RevIETF {
		return
	}
	p := &i.params
	if ird, ord, rest, ok := ParseSMBD(p.PrivateData); ok {
		p.PeerIRD, p.PeerORD, p.PrivateData = clamp14(ird), clamp14(ord), rest
		p.ORD = min(p.ORD, p.PeerIRD)
		p.Negotiated = true
	}
}
