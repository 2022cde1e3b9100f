package daemon

import (
	"cmp"
	"container/list"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"xwarp/engine/budget"
	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
	"xwarp/engine/plain"
	"xwarp/engine/ranges"
)

// holder is for whom limits are: a person, who has a user of this host and its subordinate uids (see persons), a
// tenant, whose programs count together, or the operator.
type holder struct {
	uid      uint32 // 0 of a tenant
	tenant   string // empty: it is a user
	operator bool
}

func (h holder) String() string {
	switch {
	case h.operator:
		return "the operator"
	case h.tenant != "":
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

// limits returns what [limits] and [[user]] tables say. It looks nothing up.
func (h holder) limits(c *config.Loaded) config.Limits {
	if h.tenant != "" {
		return c.TenantLimits()
	}
	return c.LimitsOf(h.uid)
}

// accounts count what users and tenants have. An account that has nothing is forgotten after accountIdle.
type accounts struct {
	now      func() time.Time
	operator account       // without bounds, and in no table
	pumps    chan struct{} // holds one value for each pump that is at work

	mu    sync.Mutex // guards everything below, and the fields of each account
	of    map[holder]*account
	idle  list.List      // accounts that have nothing, the latest first
	most  budget.Amounts // that all users may have together; 0: there is no bound
	each  budget.Amounts // that each tenant may have; 0: there is no bound but its limits
	taken budget.Amounts // that all users have together
}

// account is one holder's.
type account struct {
	holder
	all  *accounts
	used budget.Amounts
	// How often a limit was in the way.
	refused budget.Amounts
	pace    *rate.Limiter // of connections that it begins; nil: not limited
	viewer  viewer        // of its snapshots
	pumps   chan struct{} // holds one value for each of its pumps that are at work, on half of the processors at most

	resting *list.Element // in the list of idle accounts; nil: it has something
	since   time.Time     // when that began
}

func newAccounts() *accounts {
	a := &accounts{now: time.Now, of: map[holder]*account{}, pumps: make(chan struct{}, processors)}
	a.operator = *a.newAccount(holder{operator: true})
	return a
}

func (a *accounts) newAccount(h holder) *account {
	return &account{all: a, holder: h, viewer: newViewer(),
		pumps: make(chan struct{}, max(1, processors/2))}
}

// setBounds divides what the host has between users and tenants, by the configuration. Tenants are promised
// the same; users share what is left.
func (a *accounts) setBounds(c *config.Loaded, host budget.Amounts) (short []budget.Kind) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.most, a.each = host, budget.Amounts{}
	limits := c.TenantLimits()
	promised := limits.Amounts()
	for k, most := range host {
		if most == 0 || c.Tenants.Count == 0 {
			continue
		}
		a.each[k] = min(promised[k], budget.TenantShare(most, c.Tenants.Count))
		a.most[k] -= a.each[k] * int64(c.Tenants.Count)
		if a.each[k] < promised[k] {
			short = append(short, budget.Kind(k))
		}
	}
	a.most[budget.Sessions] = int64(c.Daemon.Clients) // tenants have places of their own
	return short
}

// enter returns the account of a holder once it has taken what it wants.
func (a *accounts) enter(h holder, l *config.Limits, want budget.Amounts) (*account, error) {
	if h.operator {
		return &a.operator, a.operator.take(l, want)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	u := a.of[h]
	if u == nil {
		u = a.newAccount(h)
		a.of[h] = u
	}
	return u, u.reserve(l, want)
}

// operatorSessions is how many sessions of the operator there are.
func (a *accounts) operatorSessions() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.operator.used[budget.Sessions]
}

// take counts what a holder wants more, all of it or nothing, unless a limit is in the way. Nothing bounds the
// operator.
func (u *account) take(l *config.Limits, want budget.Amounts) error {
	u.all.mu.Lock()
	defer u.all.mu.Unlock()
	return u.reserve(l, want)
}

// reserve is take with the mutex of all held.
func (u *account) reserve(l *config.Limits, want budget.Amounts) error {
	defer u.all.rest(u)
	for k, n := range want {
		if n == 0 || u.operator {
			continue
		}
		if err := u.check(l, budget.Kind(k), n); err != nil {
			u.refused[k]++
			return err
		}
	}
	u.add(&want, 1)
	return nil
}

// check says why u may not have n more of a kind.
func (u *account) check(l *config.Limits, k budget.Kind, n int64) error {
	if k < budget.Limited {
		if limit := l.Of(k); n < 0 || n > limit-u.used[k] {
			return control.Errorf(control.CodeQuota,
				"%v has %s of at most %s %s and wants %s more (raise limits.%s, or give %s)",
				u.holder, amount(k, u.used[k]), amount(k, limit), k, amount(k, n), k, u.table())
		}
	}
	if share := u.share(k); n > share-u.used[k] {
		if u.tenant != "" {
			return control.Errorf(control.CodeQuota,
				"%v has %s of the %s %v that are kept for each tenant, and wants %s more (%s)",
				u.holder, amount(k, u.used[k]), amount(k, share), k, amount(k, n), remedyOf[k])
		}
		return control.Errorf(control.CodeQuota,
			"%v has %s of its share of %s %v and wants %s more: all users together have %s of at "+
				"most %s, and one may have half of what the others leave (%s)",
			u.holder, amount(k, u.used[k]), amount(k, share), k, amount(k, n),
			amount(k, u.all.taken[k]), amount(k, u.all.most[k]), remedyOf[k])
	}
	return nil
}

// amount is n of a kind as text: memory has a unit.
func amount(k budget.Kind, n int64) string {
	if (k == budget.Memory || k == budget.DaemonMemory) && n >= 0 {
		return plain.Size(uint64(n))
	}
	return strconv.FormatInt(n, 10)
}

// remedyOf are what gives users larger shares.
var remedyOf = [budget.Kinds]string{
	budget.Sessions: "raise daemon.clients",
	budget.Mappings: "regions, queues and queue pairs have one each: lower limits.mrs, cqs or qps for who " +
		"has most: xwarp resource show user",
	budget.Descriptors: "raise LimitNOFILE of xwarpd's unit, or lower limits.cqs and qps for who has " +
		"most: xwarp resource show user",
	budget.DaemonMemory: "the host's memory or MemoryMax of xwarpd's unit is the whole: lower " +
		"limits.daemon_memory for who has most: xwarp resource show user",
}

// most returns how much of a kind that has a key in [limits] u may have.
func (u *account) most(l *config.Limits, k budget.Kind) int64 {
	u.all.mu.Lock()
	defer u.all.mu.Unlock()
	return min(l.Of(k), u.share(k))
}

// share returns what u may have of what others take from, too. It is called with the mutex of all held.
func (u *account) share(k budget.Kind) int64 {
	most := u.all.most[k]
	switch {
	case u.tenant != "" && u.all.each[k] > 0:
		return u.all.each[k]
	case u.tenant != "" || most == 0:
		return math.MaxInt64
	}
	others := u.all.taken[k] - u.used[k]
	share := budget.Share(most, others)
	if k == budget.Sessions && u.uid == 0 { // some places are beyond
		share = max(share, min(budget.RootSessions, most+budget.RootSessions-others))
	}
	return share
}

// give counts what is gone.
func (u *account) give(gone budget.Amounts) {
	u.all.mu.Lock()
	defer u.all.mu.Unlock()
	u.add(&gone, -1)
	u.all.rest(u)
}

func (u *account) add(n *budget.Amounts, sign int64) {
	for k, n := range n {
		u.used[k] += sign * n
		if u.tenant == "" && !u.operator {
			u.all.taken[k] += sign * n
		}
	}
}

// rest keeps the list of idle accounts after u has changed, and forgets those that had nothing for long, or for
// which there is no room. It is called with mu held.
func (a *accounts) rest(u *account) {
	empty := u.used == budget.Amounts{}
	switch {
	case u.operator:
		return
	case empty && u.resting == nil:
		u.resting, u.since = a.idle.PushFront(u), a.now()
	case !empty && u.resting != nil:
		a.idle.Remove(u.resting)
		u.resting = nil
	}
	a.expire()
}

// expire forgets accounts. It is called with mu held.
func (a *accounts) expire() {
	now := a.now()
	for e := a.idle.Back(); e != nil; e = a.idle.Back() {
		u := e.Value.(*account)
		if a.idle.Len() <= maxIdleAccounts && now.Sub(u.since) <= accountIdle {
			return
		}
		a.idle.Remove(e)
		u.resting = nil
		delete(a.of, u.holder)
	}
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
func (a *accounts) state(c *config.Loaded, see func(holder) bool) (list []control.UserState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expire()
	for h, u := range a.of {
		if !see(h) {
			continue
		}
		l := h.limits(c)
		s := control.UserState{UID: h.uid, Tenant: h.tenant, Used: map[string]int64{},
			Limit: map[string]int64{}, Refused: map[string]int64{}}
		for k := range budget.Kinds {
			limit := u.share(k)
			if k < budget.Limited {
				limit = l.Of(k)
			}
			s.Used[k.String()], s.Limit[k.String()], s.Refused[k.String()] = u.used[k], limit,
				u.refused[k]
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b control.UserState) int {
		return cmp.Or(cmp.Compare(len(a.Tenant), len(b.Tenant)), cmp.Compare(a.Tenant, b.Tenant),
			cmp.Compare(a.UID, b.UID))
	})
	return list
}

// mayListen reports whether a user may take a port.
func mayListen(l *config.Limits, port uint16) bool {
	return ranges.Contain(strings.Join(l.Ports, ","), uint64(port))
}
