package portmapper

import "time"

// Limits, each with what it stops.
const (
	// maxPerSource is how many requests of a source, which is an IPv4 address or an IPv6 /64, are answered in
	// a second. Sources can be forged, and an answer, shorter than its request, goes to who is named.
	maxPerSource = 2000
	// maxAnswers is how many requests are answered in a second at all, each for some 10 us of a processor.
	// What comes then waits for the next second, or is lost in the socket's buffer.
	maxAnswers = 5000
	// maxSilent bounds the peers of which is remembered that nobody answered.
	maxSilent = 4096
	// silence is how long that counts: each connection to them would wait in vain.
	silence = time.Minute
	// errorPause keeps a socket that fails from spinning.
	errorPause = time.Second
)

// waits are for the answer to each request of one connection, which is sent again after them: a lost datagram costs
// little, and a peer without a port mapper whose firewall says nothing a second.
var waits = [...]time.Duration{200 * time.Millisecond, 300 * time.Millisecond,
	500 * time.Millisecond}
