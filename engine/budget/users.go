// Package budget counts what users, tenants and peers hold, and refuses what exceeds their limits.
package budget

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/time/rate"

	"xwarp/engine/plain"
	"xwarp/tcp/tick"
)

// Holder identifies an account: a user of this host with its subordinate uids, a tenant, whose programs count
// together, or the operator.
type Holder struct {
	UID      uint32 // 0 of a tenant
	Tenant   string // empty: it is a user
	Operator bool
}

func (h Holder) String() string {
	switch {
	case h.Operator:
		return "the operator"
	case h.Tenant != "":
		return h.Tenant
	}
	return fmt.Sprintf("user %d", h.UID)
}

// TenantTable names the [[user]] table whose limits hold for each tenant.
const TenantTable = "tenants"

// table names the [[user]] table of other limits in errors.
func (h Holder) table() string {
	if h.Tenant != "" {
		return fmt.Sprintf("each tenant a [[user]] table named %q", TenantTable)
	}
	return "the user a [[user]] table"
}

// Limits are the limits of one holder, by kinds that have a key in [limits].
type Limits interface{ Of(Kind) int64 }

// Users are the accounts of all users and tenants, and of the operator. An account that holds nothing is forgotten
// after UserIdle. Its methods may be called from any goroutine.
type Users struct {
	now        func() tick.Time
	processors int
	operator   *Account      // without bounds, and in no table
	pumps      chan struct{} // holds one value for each pump that is at work

	mu          sync.Mutex // guards everything below, and the fields of each account
	accounts    map[Holder]*Account
	idle        idleAccounts[Account]
	shared      Amounts // that all users may have together; 0: there is no bound
	tenantShare Amounts // that each tenant may have; 0: there is no bound but its limits
	inUse       Amounts // that all users have together
}

// Account is what one holder has.
type Account struct {
	Holder
	Snapshots Snapshots // for programs of the holder

	users   *Users
	used    Amounts
	refused Amounts       // how often a limit was in the way
	pace    *rate.Limiter // of connections that it opens; nil: not limited
	idle    idle
	// pumps holds one value for each of its pumps that are at work, on half of the processors at most.
	pumps chan struct{}
}

// NewUsers returns accounts without bounds. At most processors pumps are at work at a time; now is a clock that never
// runs backwards.
func NewUsers(processors int, now func() tick.Time) *Users {
	u := &Users{now: now, processors: processors, accounts: map[Holder]*Account{},
		pumps: make(chan struct{}, processors)}
	u.operator = u.newAccount(Holder{Operator: true})
	return u
}

func (u *Users) newAccount(h Holder) *Account {
	return &Account{users: u, Holder: h, Snapshots: newSnapshots(),
		pumps: make(chan struct{}, max(1, u.processors/2))}
}

// Bounds is what users and tenants divide among themselves.
type Bounds struct {
	Host     Amounts // 0: the host sets no bound
	Sessions int     // of all users; tenants have places of their own
	Tenants  int
	Tenant   Amounts // the limits of each tenant
}

// Shortage is a kind of which tenants get less than their limits.
type Shortage struct {
	Kind Kind
	Each int64 // what each tenant gets
}

// SetBounds divides what the host has between users and tenants. Tenants are promised the same; users share what is
// left. It returns the kinds of which the host has not enough for all tenants.
func (u *Users) SetBounds(b Bounds) (short []Shortage) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.shared, u.tenantShare = b.Host, Amounts{}
	for k, bound := range b.Host {
		if bound == 0 || b.Tenants == 0 {
			continue
		}
		u.tenantShare[k] = min(b.Tenant[k], TenantShare(bound, b.Tenants))
		u.shared[k] -= u.tenantShare[k] * int64(b.Tenants)
		if u.tenantShare[k] < b.Tenant[k] {
			short = append(short, Shortage{Kind(k), u.tenantShare[k]})
		}
	}
	u.shared[Sessions] = int64(b.Sessions)
	return short
}

// Enter returns the account of a holder, in which it has reserved what it wants.
func (u *Users) Enter(h Holder, l Limits, want Amounts) (*Account, error) {
	if h.Operator {
		return u.operator, u.operator.Reserve(l, want)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	a := u.accounts[h]
	if a == nil {
		a = u.newAccount(h)
		u.accounts[h] = a
	}
	return a, a.reserve(l, want)
}

// OperatorSessions returns how many sessions of the operator there are.
func (u *Users) OperatorSessions() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.operator.used[Sessions]
}

// Reserve counts what a holder wants more, all of it or nothing. The error names the limit that is in the way, and
// what raises it. Nothing bounds the operator.
func (a *Account) Reserve(l Limits, want Amounts) error {
	a.users.mu.Lock()
	defer a.users.mu.Unlock()
	return a.reserve(l, want)
}

// reserve is Reserve with the mutex of all accounts held.
func (a *Account) reserve(l Limits, want Amounts) error {
	defer a.users.updateIdle(a)
	for k, n := range want {
		if n == 0 || a.Operator {
			continue
		}
		if err := a.check(l, Kind(k), n); err != nil {
			a.refused[k]++
			return err
		}
	}
	a.add(&want, 1)
	return nil
}

// check returns an error that says why the account may not have n more of kind k, or nil.
func (a *Account) check(l Limits, k Kind, n int64) error {
	if k < Limited {
		if limit := l.Of(k); n < 0 || n > limit-a.used[k] {
			return fmt.Errorf(
				"%v has %s of at most %s %s and needs %s more (raise limits.%s, or give %s)",
				a.Holder, k.format(a.used[k]), k.format(limit), k, k.format(n), k, a.table())
		}
	}
	if share := a.share(k); n > share-a.used[k] {
		if a.Tenant != "" {
			return fmt.Errorf(
				"%v has %s of the %s %v reserved for each tenant and needs %s more (%s)",
				a.Holder, k.format(a.used[k]), k.format(share), k, k.format(n), k.Remedy())
		}
		return fmt.Errorf(
			"%v has %s of its share of %s %v and needs %s more: all users together have %s of at "+
				"most %s, and one user may have half of what the others leave (%s)",
			a.Holder, k.format(a.used[k]), k.format(share), k, k.format(n),
			k.format(a.users.inUse[k]), k.format(a.users.shared[k]), k.Remedy())
	}
	return nil
}

// format is n of a kind as text, with a unit for memory.
func (k Kind) format(n int64) string {
	if (k == Memory || k == DaemonMemory) && n >= 0 {
		return plain.Size(uint64(n))
	}
	return strconv.FormatInt(n, 10)
}

var remedies = [Kinds]string{
	Sessions: "raise daemon.clients",
	Mappings: "regions, queues and queue pairs have one each: lower limits.mrs, cqs or qps for the " +
		"largest user: xwarp resource show user",
	Descriptors: "raise LimitNOFILE of xwarpd's unit, or lower limits.cqs and qps for the " +
		"largest user: xwarp resource show user",
	DaemonMemory: "the host's memory or MemoryMax of xwarpd's unit is the whole: lower " +
		"limits.daemon_memory for the largest user: xwarp resource show user",
}

// Remedy says what gives users larger shares of a kind; empty for kinds that they do not share.
func (k Kind) Remedy() string { return remedies[k] }

// Most returns how much of kind k, which has a key in [limits], the account may have.
func (a *Account) Most(l Limits, k Kind) int64 {
	a.users.mu.Lock()
	defer a.users.mu.Unlock()
	return min(l.Of(k), a.share(k))
}

// share returns how much of kind k the account may have: its share of an amount that all holders take from, and
// math.MaxInt64 if that has no bound. It is called with the mutex of all accounts held.
func (a *Account) share(k Kind) int64 {
	bound := a.users.shared[k]
	switch {
	case a.Tenant != "" && a.users.tenantShare[k] > 0:
		return a.users.tenantShare[k]
	case a.Tenant != "" || bound == 0:
		return math.MaxInt64
	}
	others := a.users.inUse[k] - a.used[k]
	share := Share(bound, others)
	if k == Sessions && a.UID == 0 { // root may exceed the configured number by RootSessions
		share = max(share, min(RootSessions, bound+RootSessions-others))
	}
	return share
}

// Release gives back what was reserved.
func (a *Account) Release(gone Amounts) {
	a.users.mu.Lock()
	defer a.users.mu.Unlock()
	a.add(&gone, -1)
	a.users.updateIdle(a)
}

// add adds the amounts, times sign, to the account and to the sum of all users.
func (a *Account) add(amounts *Amounts, sign int64) {
	for k, n := range amounts {
		a.used[k] += sign * n
		if a.Tenant == "" && !a.Operator {
			a.users.inUse[k] += sign * n
		}
	}
}

// updateIdle updates the list of idle accounts after the account a has changed, and forgets accounts. It is called with
// mu held.
func (u *Users) updateIdle(a *Account) {
	if a.Operator {
		return
	}
	u.idle.update(a, &a.idle, a.used == Amounts{}, u.now())
	u.expire()
}

// expire forgets accounts that have held nothing for long, or for which there is no room. It is called with mu held.
func (u *Users) expire() {
	now := u.now()
	for a := u.idle.oldest(); a != nil; a = u.idle.oldest() {
		if u.idle.len() <= MaxIdleUsers && now.Sub(a.idle.since) <= UserIdle {
			return
		}
		u.idle.remove(&a.idle)
		delete(u.accounts, a.Holder)
	}
}

// WaitTurn waits until the account may open one more connection. perSecond is the rate, which a reload may have
// changed; the connections of one second may be opened at once.
func (a *Account) WaitTurn(ctx context.Context, perSecond int) error {
	a.users.mu.Lock()
	a.pace = adjust(a.pace, perSecond)
	pace := a.pace
	a.users.mu.Unlock()
	if pace == nil {
		return nil
	}
	if err := pace.Wait(ctx); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	return nil
}

// EnterPump waits until few enough pumps of the same holder, and of all, are at work. Those that wait have their turns
// in the order in which they came.
func (a *Account) EnterPump() {
	a.pumps <- struct{}{}
	a.users.pumps <- struct{}{}
}

// LeavePump ends the turn of a pump.
func (a *Account) LeavePump() {
	<-a.users.pumps
	<-a.pumps
}

// AccountState is one account.
type AccountState struct {
	Holder
	Used, Limit, Refused Amounts
}

// State returns the accounts of the holders that see selects, users before tenants.
func (u *Users) State(limits func(Holder) Limits, see func(Holder) bool) (list []AccountState) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.expire()
	for h, a := range u.accounts {
		if !see(h) {
			continue
		}
		l := limits(h)
		s := AccountState{Holder: h, Used: a.used, Refused: a.refused}
		for k := range Kinds {
			if s.Limit[k] = a.share(k); k < Limited {
				s.Limit[k] = l.Of(k)
			}
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b AccountState) int {
		return cmp.Or(cmp.Compare(len(a.Tenant), len(b.Tenant)), cmp.Compare(a.Tenant, b.Tenant),
			cmp.Compare(a.UID, b.UID))
	})
	return list
}
