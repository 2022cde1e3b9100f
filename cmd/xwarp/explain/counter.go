package explain

import (
	"cmp"
	"fmt"
	"slices"

	"xwarp/engine/daemon/counters"
)

// byCounter finds counters by their key or the name of their metric, and outcomes of the steering program by their
// code.
func byCounter(q string) (list []Entry) {
	for _, t := range append(counters.All(), counters.Table{*counters.HeldBytes}) {
		for i := range t {
			if c := &t[i]; c.Key == q || c.Metric == q {
				list = append(list, counterEntry(c))
			}
		}
	}
	if i := slices.IndexFunc(outcomes(), func(e Entry) bool { return e.Code == q }); i >= 0 {
		list = append(list, outcomes()[i])
	}
	return list
}

func counterEntry(c *counters.Counter) Entry {
	metric := cmp.Or(c.Metric, "not a metric; xwarp statistic show -j")
	if c.Cause != "" {
		metric += fmt.Sprintf("{cause=%q}", c.Cause)
	}
	return Entry{Kind: Counter, Code: c.Key, Name: metric, Meaning: c.Meaning,
		Note: "it counts " + c.Unit}
}
