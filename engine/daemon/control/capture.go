package control

import "net/netip"

// CaptureArgs describe a capture of a device's frames; zero fields do not restrict it. The session's device is taken.
type CaptureArgs struct {
	Flows   []CaptureFlow `json:"flows,omitempty"`  // one of these connections
	Remote  netip.Prefix  `json:"remote,omitzero"`  // peers
	Port    uint16        `json:"port,omitempty"`   // of either end
	Frames  uint64        `json:"frames,omitempty"` // number of frames to end after, those of the beginning included
	SnapLen int           `json:"snaplen,omitempty"`
	// Decrypted adds frames as they are before IPsec encrypts them and after it decrypts them, on interfaces of their
	// own in the file. Only the operator may.
	Decrypted bool `json:"decrypted,omitempty"`
}

// CaptureFlow is a connection.
type CaptureFlow struct {
	Local  netip.AddrPort `json:"local"`
	Remote netip.AddrPort `json:"remote"`
}

// MaxCaptureFlows bounds the connections of a capture's filter: each frame is compared with all.
const MaxCaptureFlows = 64

// CaptureResult is what a capture that has ended counted.
type CaptureResult struct {
	Frames  uint64 `json:"frames"`       // in the file
	Start   int    `json:"start_frames"` // of these, frames from the start of connections that were there already
	Dropped uint64 `json:"dropped"`      // frames that are missing because they were not read fast enough
	Error   string `json:"error,omitempty"`
}
