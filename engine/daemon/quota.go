package daemon

import (
	"cmp"
	"context"
	"fmt"
	"os/user"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/time/rate"

	"xwarp/engine/budget"
	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
	"xwarp/engine/ranges"
)

// limitOf returns the key in [limits] that has the name of a kind.
func limitOf(l *config.Limits, k budget.Kind) int64 {
	for f, v := range reflect.ValueOf(l).Elem().Fields() {
		if f.Tag.Get("toml") == k.String() {
			return v.Int()
		}
	}
	return 0
}

// holder is for whom limits are: a user of this host, or a tenant, whose programs count together.
type holder struct {
	uid    uint32 // 0 of a tenant
	tenant string // empty: it is a user
}

func (h holder) String() string {
	if h.tenant != "" {
		return h.tenant
	}
	return fmt.Sprintf("user %d", h.uid)
}

// table is what the [[user]] table of other limits is called.
func (h holder) table() string {
	if h.tenant != "" {
		return fmt.Sprintf("each tenant a [[user]] table named %q", config.TenantUser)
	}
	return "the user a [[user]] table"
}

// accounts count what users and tenants have.
type accounts struct {
	mu   sync.Mutex
	of   map[holder]*account
	maps int64 // mappings of all
}

// account is one holder's.
type account struct {
	holder
	all  *accounts
	used budget.Amounts
	// How often a limit was in the way.
	refused budget.Amounts
	pace    *rate.Limiter // of connections that it begins; nil: not limited
}

func (a *accounts) open(h holder) *account {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of == nil {
		a.of = map[holder]*account{}
	}
	u := a.of[h]
	if u == nil {
		u = &account{all: a, holder: h}
		a.of[h] = u
	}
	return u
}

// take counts what somebody wants more, all of it or nothing, unless a limit is in the way; nil has none.
func (u *account) take(l *config.Limits, want budget.Amounts) error {
	u.all.mu.Lock()
	defer u.all.mu.Unlock()
	for k, n := range want {
		if l == nil || n == 0 {
			continue
		}
		k := budget.Kind(k)
		if limit := limitOf(l, k); n < 0 || n > limit-u.used[k] {
			u.refused[k]++
			return control.Errorf(control.CodeQuota,
				"%v has %d of at most %d %s and wants %d more (raise limits.%s, or give %s)",
				u.holder, u.used[k], limit, k, n, k, u.table())
		}
	}
	maps := want.Mappings()
	if maps > budget.MaxMappings-u.all.maps {
		return control.Errorf(control.CodeQuota,
			"programs have %d regions, queues and queue pairs together, of at most %d that the "+
				"daemon maps (lower limits.mrs, cqs or qps for who takes most: xwarp resource "+
				"show user)",
			u.all.maps, budget.MaxMappings)
	}
	u.all.maps += maps
	for k, n := range want {
		u.used[k] += n
	}
	return nil
}

// give counts what is gone.
func (u *account) give(gone budget.Amounts) {
	u.all.mu.Lock()
	u.all.maps -= gone.Mappings()
	for k, n := range gone {
		u.used[k] -= n
	}
	u.all.mu.Unlock()
}

// turn waits until a user may begin one more connection at a rate, which a reload may have changed; a
// second's worth may come at once.
func (u *account) turn(ctx context.Context, perSecond int) error {
	u.all.mu.Lock()
	switch {
	case perSecond == 0:
		u.pace = nil
	case u.pace == nil || u.pace.Burst() != perSecond:
		u.pace = rate.NewLimiter(rate.Limit(perSecond), perSecond)
	}
	pace := u.pace
	u.all.mu.Unlock()
	if pace == nil {
		return nil
	}
	if err := pace.Wait(ctx); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	return nil
}

// state returns the users' part of a snapshot, with that of tenants behind it.
func (a *accounts) state(c *config.Config, see func(holder) bool) (list []control.UserState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for h, u := range a.of {
		if !see(h) {
			continue
		}
		l := limitsFor(c, h)
		s := control.UserState{UID: h.uid, Tenant: h.tenant, Used: map[string]int64{},
			Limit: map[string]int64{}, Refused: map[string]int64{}}
		for k := range budget.Kinds {
			s.Used[k.String()], s.Limit[k.String()], s.Refused[k.String()] = u.used[k],
				limitOf(&l, k), u.refused[k]
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b control.UserState) int {
		return cmp.Or(cmp.Compare(len(a.Tenant), len(b.Tenant)), cmp.Compare(a.Tenant, b.Tenant),
			cmp.Compare(a.UID, b.UID))
	})
	return list
}

// limitsFor returns the limits of a user or a tenant.
func limitsFor(c *config.Config, h holder) config.Limits {
	if h.tenant != "" {
		return c.LimitsOf(config.TenantUser, config.TenantUser)
	}
	number := strconv.FormatUint(uint64(h.uid), 10)
	name := number
	if len(c.User) > 0 {
		if u, err := user.LookupId(number); err == nil {
			name = u.Username
		}
	}
	return c.LimitsOf(name, number)
}

// mayListen reports whether a user may take a port.
func mayListen(l *config.Limits, port uint16) bool {
	return ranges.Contain(strings.Join(l.Ports, ","), uint64(port))
}
