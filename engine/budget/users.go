// Package budget counts the resources that users, tenants and peers hold, and refuses requests beyond their limits.
package budget

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"

	"xwarp/engine/plain"
	"xwarp/tcp/tick"
)

// Holder identifies an account: a user of this host with its subordinate UIDs, a tenant with all its programs, or the
// operator.
type Holder struct {
	UID      uint32 // 0 for a tenant
	Tenant   string // empty for a user
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

// TenantTable is the name of the [[user]] table with the limits of each tenant.
const TenantTable = "tenants"

// table returns the [[user]] table that can raise the holder's limits, for errors.
func (h Holder) table() string {
	if h.Tenant != "" {
		return fmt.Sprintf("each tenant a [[user]] table named %q", TenantTable)
	}
	return "the user a [[user]] table"
}

// Limits are the limits of one holder. Of returns the limit of a kind that has a key in [limits].
type Limits interface{ Of(Kind) int64 }

// Users has the accounts of all users, tenants and the operator. Accounts that hold nothing are forgotten after
// UserIdle, or earlier if there are more than MaxIdleUsers. The operator's account stays. Its methods may be called
// from any goroutine.
type Users struct {
	now        func() tick.Time
	processors int
	operator   *Account      // without limits, and in no table
	pumps      chan struct{} // one value for each active pump

	mu          sync.Mutex // guards the fields below, and used, refused, pace and idle of accounts
	accounts    map[Holder]*Account
	idle        idleAccounts[Account]
	shared      Amounts // maximum for all users together, without tenants; 0: no bound
	tenantShare Amounts // maximum for each tenant; 0: only the tenant's own limits
	inUse       Amounts // used by all users together, without tenants and the operator
}

// Account is the account of one holder.
type Account struct {
	Holder
	Snapshots Snapshots     // for programs of the holder
	Events    atomic.Uint64 // number of events that the holder may see

	users   *Users
	used    Amounts
	refused Amounts       // refusals, by kind
	pace    *rate.Limiter // of new connections; nil if unlimited
	idle    idle
	turns   [turnKinds]chan struct{} // one value for each turn in progress
}

// TurnKind is a kind of work for programs. A holder has turns of each kind on at most half of the CPUs, but at least
// one, so that its share of the CPU time does not grow with the number of its sessions.
type TurnKind int

// The kinds of turns.
const (
	PumpTurn    TurnKind = iota // moves work requests from rings into the engine
	SignalTurn                  // wakes a program
	RequestTurn                 // executes a request of the control socket
	turnKinds
)

// NewUsers returns accounts without bounds. At most processors pumps are active at a time. now is a monotonic clock.
func NewUsers(processors int, now func() tick.Time) *Users {
	u := &Users{now: now, processors: processors, accounts: map[Holder]*Account{},
		pumps: make(chan struct{}, processors)}
	u.operator = u.newAccount(Holder{Operator: true})
	return u
}

func (u *Users) newAccount(h Holder) *Account {
	a := &Account{users: u, Holder: h, Snapshots: newSnapshots()}
	for k := range a.turns {
		a.turns[k] = make(chan struct{}, max(1, u.processors/2))
	}
	return a
}

// Bounds are the amounts that users and tenants share, and the limits of tenants.
type Bounds struct {
	Host     Amounts // 0: no bound
	Sessions int     // for all users; tenants have their own
	Tenants  int
	Tenant   Amounts // limits of each tenant
}

// Shortage is a kind of which tenants get less than their limits.
type Shortage struct {
	Kind Kind
	Each int64 // amount that each tenant gets
}

// SetBounds divides the host's resources between users and tenants. All tenants get the same guarantee, and users share
// the rest. It returns the kinds of which the host has too little for all tenants.
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

// Enter returns the account of a holder, after reserving amounts in it. It fails as Account.Reserve does.
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

// OperatorSessions returns the number of the operator's sessions.
func (u *Users) OperatorSessions() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.operator.used[Sessions]
}

// Reserve reserves more for a holder, all or nothing. The error names the exceeded limit and how to raise it. The
// operator has no limits.
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

// check returns an error if the account may not have n more of kind k.
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

// format formats n of a kind, with a unit for memory.
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

// Remedy says how to raise users' shares of a kind. It is empty for kinds that are not shared.
func (k Kind) Remedy() string { return remedies[k] }

// Most returns the maximum of kind k, which has a key in [limits], for the account.
func (a *Account) Most(l Limits, k Kind) int64 {
	a.users.mu.Lock()
	defer a.users.mu.Unlock()
	return min(l.Of(k), a.share(k))
}

// share returns the account's share of kind k, or math.MaxInt64 if it is not bounded. It is called with the mutex of
// all accounts held.
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
	if k == Sessions && a.UID == 0 { // root may exceed the limit by RootSessions
		share = max(share, min(RootSessions, bound+RootSessions-others))
	}
	return share
}

// Release releases reserved amounts.
func (a *Account) Release(gone Amounts) {
	a.users.mu.Lock()
	defer a.users.mu.Unlock()
	a.add(&gone, -1)
	a.users.updateIdle(a)
}

// add adds sign times the amounts to the account and to the sum of all users.
func (a *Account) add(amounts *Amounts, sign int64) {
	for k, n := range amounts {
		a.used[k] += sign * n
		if a.Tenant == "" && !a.Operator {
			a.users.inUse[k] += sign * n
		}
	}
}

// updateIdle updates the idle list after a change of account a, and forgets accounts. It is called with mu held.
func (u *Users) updateIdle(a *Account) {
	if a.Operator {
		return
	}
	u.idle.update(a, &a.idle, a.used == Amounts{}, u.now())
	u.expire()
}

// expire forgets idle accounts that are older than UserIdle or exceed MaxIdleUsers. It is called with mu held.
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

// WaitTurn waits until the account may open another connection. perSecond is the rate, which a reload may have changed;
// bursts of one second's worth are allowed. Zero means no limit. It fails if ctx is done first, or if its deadline is
// too early for the wait.
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

// EnterPump waits until few enough pumps of the holder, and of all holders, are active. Waiting pumps get their turn in
// order of arrival.
func (a *Account) EnterPump() {
	a.Enter(PumpTurn)
	a.users.pumps <- struct{}{}
}

// LeavePump ends the turn of a pump.
func (a *Account) LeavePump() {
	<-a.users.pumps
	a.Leave(PumpTurn)
}

// Enter waits until the holder has few enough turns of a kind. Turns are given in order of arrival.
func (a *Account) Enter(k TurnKind) { a.turns[k] <- struct{}{} }

// Leave ends a turn.
func (a *Account) Leave(k TurnKind) { <-a.turns[k] }

// AccountState is the state of one account.
type AccountState struct {
	Holder
	Used, Limit, Refused Amounts
}

// State returns the accounts selected by see, users before tenants. It omits the operator's account.
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
