package mpa

// Error codes of MPA: layer ulpdu.MPA, type 0 (RFC 5044, 8; RFC 6581, 8).
const (
	CodeClosed  = 1 // the TCP connection is closed, lost, or ended inside an FPDU
	CodeCRC     = 2 // the CRC is wrong
	CodeMarker  = 3 // the CRC is correct, but markers and lengths disagree
	CodeStartup = 4 // a start-up frame is wrong; the connection is closed at once
	CodeLocal   = 5 // local catastrophic error
	CodeIRD     = 6 // the peer needs a larger IRD
	CodeRTR     = 7 // no RTR message that both can use
)
