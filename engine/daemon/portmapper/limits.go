package portmapper

import "time"

// Limits, each with what it stops.
const (
	// maxPerSource is the number of answers to one source, an IPv4 address or an IPv6 /64, in a second. Sources can
	// be forged, and the victim receives the answers, which are shorter than the requests.
	maxPerSource = 2000
	// maxAnswers is the number of answers to all sources in a second. Each takes some 10 us of a processor. Further
	// requests wait for the next second, or are lost in the socket's buffer.
	maxAnswers = 5000
	// maxSilent is the maximum number of peers that are remembered as silent.
	maxSilent = 4096
	// silence is how long a silent peer is not asked again, because each connection to it would wait in vain.
	silence = time.Minute
	// errorPause keeps a socket that fails from spinning.
	errorPause = time.Second
)

// waits are the times to wait for an answer before the request is sent again, and at last given up. A lost datagram
// costs little; a peer without a port mapper, behind a firewall that drops requests, costs a second.
var waits = [...]time.Duration{200 * time.Millisecond, 300 * time.Millisecond,
	500 * time.Millisecond}
