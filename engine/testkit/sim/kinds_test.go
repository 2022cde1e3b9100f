package sim

import "xwarp/mpa/startup"

// kinds draws other properties of a connection: memory windows, and peers that speak older protocols or request what
// the other end does not support.
func (w *wide) kinds(cfg *rdmaConfig, name string) {
	drawn := w.rnd
	defer func() { w.rnd = drawn }()
	w.draws("memory windows of " + name)
	cfg.windows = w.one(3) && !w.off("memory windows")
	w.draws("any CRC error of " + name)
	cfg.anyCRC = w.one(6) && !w.off("any CRC error")
	w.strict = w.strict || cfg.anyCRC
	if w.draws("vanishing memory of " + name); w.vanish && w.one(2) {
		cfg.early = endVanish
		return
	}
	w.draws("other kinds of " + name)
	if !w.one(4) || w.off("other kinds") {
		return
	}
	cfg.rsp.SMBD, cfg.ini.SMBD = w.one(2), w.one(2)
	if cfg.ini.SMBD && cfg.rsp.SMBD && w.one(2) {
		cfg.ini.Revision, cfg.ini.RTRs = startup.RevIETF, 0
	}
	if !w.one(4) {
		return
	}
	cfg.early = endMismatch
	switch w.rnd.IntN(4) {
	case 0: // more Reads than the initiator supports
		cfg.ini.Revision, cfg.ini.IRD = startup.RevEnhanced, 1
		cfg.answer = startup.Answer{IRD: 8, ORD: 8}
	case 1: // an RTR Read, although the responder's IRD is 0
		cfg.ini.Revision, cfg.ini.RTRs = startup.RevEnhanced, startup.RTRRead
		cfg.answer = startup.Answer{ORD: 8}
	case 2: // an RDMA Consortium peer, which an IETF peer refuses
		cfg.rsp.Role = startup.RDMAC
	default:
		cfg.ini.Role = startup.RDMAC
	}
}
