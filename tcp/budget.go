package tcp

import "xwarp/tcp/tick"

// ChallengeBudget throttles the challenge ACKs of all connections of a worker (RFC 5961, 7). The limit of each interval
// is random, so that an attacker who counts answers learns nothing about other connections.
type ChallengeBudget struct {
	perInterval int
	left        int
	until       tick.Time
	rng         uint64
	used        uint64
}

// Init allows perSecond challenge ACKs per second on average; 0 or less means 1000. seed must be random.
func (b *ChallengeBudget) Init(perSecond int, seed uint64) {
	if perSecond <= 0 {
		perSecond = 1000
	}
	*b = ChallengeBudget{perInterval: perSecond, rng: seed}
}

// Used returns the number of challenge ACKs allowed since Init.
func (b *ChallengeBudget) Used() uint64 { return b.used }

func (b *ChallengeBudget) allow(now tick.Time) bool {
	if now >= b.until {
		b.until = now.Add(tick.Second)
		b.left = b.perInterval/2 + int(b.next()%uint64(b.perInterval+1))
	}
	if b.left <= 0 {
		return false
	}
	b.left--
	b.used++
	return true
}

// next returns the next number of the generator SplitMix64.
func (b *ChallengeBudget) next() uint64 {
	b.rng += 0x9e3779b97f4a7c15
	z := b.rng
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
