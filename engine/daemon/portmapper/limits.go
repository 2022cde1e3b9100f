package portmapper

import "time"

// Limits of a port mapper.
const (
	// maxPerSource is the maximum number of answers per second to one source, an IPv4 address or an IPv6 /64. Sources
	// can be forged, and the victim receives the answers, which are shorter than the requests.
	maxPerSource = 2000
	// maxAnswers is the maximum number of answers per second to all sources. Each takes about 10 us of CPU time.
	// Further requests wait for the next second, or are lost when the socket's buffer is full.
	maxAnswers = 5000
	// maxSilent is the maximum number of peers remembered as silent, because they take memory.
	maxSilent = 4096
	// silence is how long a silent peer is not asked again, because each connection to it would wait for the timeout.
	silence = time.Minute
	// errorPause is the pause after a read that failed, because the next read might fail at once, too.
	errorPause = time.Second
)

// waits are the times to wait for an answer before repeating the request and finally giving up. A lost datagram costs
// little. A peer without a port mapper, behind a firewall that drops requests, costs a second.
var waits = [...]time.Duration{200 * time.Millisecond, 300 * time.Millisecond,
	500 * time.Millisecond}
