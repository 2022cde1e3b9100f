package stack

// SetMAC says that the interface has another Ethernet address: frames are sent from it, and taken when they
// are for it, from now on.
func (s *Stack) SetMAC(mac [6]byte) {
	if mac == s.cfg.MAC {
		return
	}
	s.cfg.MAC = mac
	for _, e := range s.conns {
		e.frame.setSource(mac)
		e.expect.init(&s.cfg, &e.tuple)
	}
}
