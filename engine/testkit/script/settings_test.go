package script

import (
	"fmt"
	"strconv"
	"strings"

	"xwarp/tcp/tick"
)

// settings are the settings of a host before a script starts. Both hosts have the same defaults: NewReno, no Nagle, MTU
// 1500, and everything that the RFCs recommend.
type settings struct {
	IPv6                   bool
	NoTS, NoSACK, NoWScale bool
	NoTLP, NoRACK, NoFRTO  bool
	NoDSACK                bool
	Nagle                  bool
	DelayedAcks            bool // acknowledgements are delayed from the first segment on
	Cookies                bool
	NoCookies              bool
	RFC1337                bool
	ProbeMTU               bool
	Cubic                  bool
	OursOnly               bool
	ECN                    string // off, passive, classic, accurate
	MTU, RcvBuf, SndBuf    int
	MSS                    int // value of the MSS option
	SYNRetries             int
	IW                     int
	TimeWait               tick.Duration
}

// apply parses one word of a use line.
func (s *settings) apply(word string) error {
	flags := map[string]*bool{"ipv6": &s.IPv6, "nots": &s.NoTS, "nosack": &s.NoSACK,
		"nows": &s.NoWScale, "notlp": &s.NoTLP,
		"norack": &s.NoRACK, "nofrto": &s.NoFRTO, "nodsack": &s.NoDSACK, "nagle": &s.Nagle,
		"delayed-acks": &s.DelayedAcks,
		"cookies":      &s.Cookies, "nocookies": &s.NoCookies, "rfc1337": &s.RFC1337,
		"probe-mtu": &s.ProbeMTU, "cubic": &s.Cubic,
		"ours-only": &s.OursOnly}
	numbers := map[string]*int{"mtu": &s.MTU, "rcvbuf": &s.RcvBuf, "sndbuf": &s.SndBuf,
		"mss": &s.MSS, "syn-retries": &s.SYNRetries,
		"iw": &s.IW}
	name, arg, hasArg := strings.Cut(word, "=")
	var err error
	switch {
	case flags[name] != nil && !hasArg:
		*flags[name] = true
	case numbers[name] != nil && hasArg:
		*numbers[name], err = strconv.Atoi(arg)
	case name == "ecn" && strings.Contains(" off passive classic accurate ", " "+arg+" "):
		s.ECN = arg
	case name == "time-wait":
		s.TimeWait, err = parseDuration(arg)
	default:
		return fmt.Errorf("%q is not a setting", word)
	}
	return err
}

// parseDuration reads seconds, such as 0.25.
func parseDuration(s string) (tick.Duration, error) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f < 0 || f > 1e7 {
		return 0, fmt.Errorf("%q is not a number of seconds", s)
	}
	return tick.Duration(f*float64(tick.Second) + 0.5), nil
}
