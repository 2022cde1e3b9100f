package daemon

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"xwarp/engine/budget"
	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/counters"
)

// unlimited are limits that are in nobody's way.
func unlimited() *config.Limits {
	l := new(config.Limits)
	for _, v := range reflect.ValueOf(l).Elem().Fields() {
		if v.CanInt() {
			v.SetInt(1 << 60)
		}
	}
	return l
}

// one is one object of a kind.
func one(k budget.Kind) (a budget.Amounts) {
	a[k] = 1
	return a
}

// fill has users come and take as much of a kind as they get, each step at a time, until n of them got nothing more.
func fill(t *testing.T, a *accounts, k budget.Kind, users int) {
	t.Helper()
	var want budget.Amounts
	for uid := range uint32(users) {
		for want[k] = max(1, a.most[k]); want[k] > 0; {
			if _, err := a.enter(holder{uid: 1000 + uid}, unlimited(), want); err != nil {
				want[k] /= 2
			}
		}
	}
}

// TestEachKindIsBounded: each kind is bounded for a user, by a key of [limits] or by a share of what there is for
// all, and nothing that users do takes from the operator or all from other users.
func TestEachKindIsBounded(t *testing.T) {
	for k := range budget.Kinds {
		t.Run(k.String(), func(t *testing.T) {
			a := newAccounts()
			a.most = budget.OfHost()
			a.most[budget.Sessions] = 512
			if k >= budget.Limited && a.most[k] == 0 {
				t.Fatal("neither a limit nor a share bounds it")
			}
			if a.most[k] == 0 {
				return // one user's limit is none of another's
			}
			const greedy = 40
			fill(t, a, k, greedy)
			if a.taken[k] > a.most[k] {
				t.Errorf("%d are taken, of %d", a.taken[k], a.most[k])
			}
			if first := a.of[holder{uid: 1000}].used[k]; first > (a.most[k]+1)/2 {
				t.Errorf("the first user has %d of %d", first, a.most[k])
			}
			if _, err := a.enter(holder{uid: 7}, unlimited(), one(k)); err != nil {
				t.Errorf("another user: %v", err)
			}
			_, err := a.enter(holder{uid: 1000}, unlimited(), one(k))
			quotaText(t, err, remedyOf[k])
			fill(t, a, k, 1000)
			var much budget.Amounts
			much[k] = a.most[k]
			if _, err := a.enter(holder{operator: true}, nil, much); err != nil {
				t.Errorf("the operator: %v", err)
			}
			if a.taken[k] > a.most[k] {
				t.Errorf("%d are taken, of %d", a.taken[k], a.most[k])
			}
		})
	}
}

func quotaText(t *testing.T, err error, want string) {
	t.Helper()
	var e *control.Error
	if !errors.As(err, &e) || e.Code != control.CodeQuota || want == "" ||
		!strings.Contains(e.Text, want) {
		t.Errorf("%v, want an error that says %q", err, want)
	}
}

// TestDefaultsFitTheirShare: a user who is alone may have what the default [limits] say, and so may a few at a time.
func TestDefaultsFitTheirShare(t *testing.T) {
	d, _ := daemonOn(t)
	cfg := d.cfg.Load()
	l := cfg.Limits
	full := l.Amounts()
	full[budget.DaemonMemory], full[budget.Descriptors] = 0, 0 // as the host has it
	for uid := range uint32(3) {
		if _, err := d.accounts.enter(holder{uid: 1000 + uid}, &l, full); err != nil {
			t.Errorf("user %d: %v", uid, err)
		}
	}
}

// TestTenantsKeepTheirs: users and other tenants cannot take what a tenant is promised, of no kind, also where the
// host has too little for the limits.
func TestTenantsKeepTheirs(t *testing.T) {
	const n = 8
	d, _ := daemonOn(t)
	cfg := *d.cfg.Load()
	cfg.Tenants.Count = n
	host := budget.OfHost()
	for k := range budget.Kinds {
		if host[k] == 0 {
			continue
		}
		for _, scarce := range []bool{false, true} {
			a := newAccounts()
			with := host
			if scarce {
				with[k] = 100
			}
			short := a.setBounds(&cfg, with)
			if slices.Contains(short, k) != (a.each[k] < cfg.Limits.Amounts()[k]) ||
				scarce && !slices.Contains(short, k) {
				t.Errorf("%v, scarce %v: said to be short: %v", k, scarce, short)
			}
			fill(t, a, k, 100)
			var want budget.Amounts
			want[k] = a.each[k]
			if want[k] == 0 {
				t.Errorf("%v: tenants are promised nothing", k)
			}
			for i := range n {
				h := holder{tenant: control.TenantName(i)}
				if _, err := a.enter(h, unlimited(), want); err != nil {
					t.Errorf("%v, scarce %v: %v", k, scarce, err)
				}
				_, err := a.enter(h, unlimited(), one(k))
				quotaText(t, err, remedyOf[k])
			}
			if sum := a.taken[k] + n*a.each[k]; sum > with[k] {
				t.Errorf("%v: users and tenants have %d of %d", k, sum, with[k])
			}
		}
	}
}

// TestAccountsAreForgotten: accounts that have nothing are few, and gone after a while; rates outlive the sessions.
func TestAccountsAreForgotten(t *testing.T) {
	a := newAccounts()
	now := time.Now()
	a.now = func() time.Time { return now }
	a.most[budget.Sessions] = 512
	come := func(uid uint32) {
		u, err := a.enter(holder{uid: uid}, unlimited(), sessionCost)
		if err != nil {
			t.Fatal(err)
		}
		u.give(sessionCost)
	}
	stays, err := a.enter(holder{uid: 1}, unlimited(), sessionCost)
	if err != nil {
		t.Fatal(err)
	}
	for uid := range uint32(10_000) {
		come(1000 + uid)
	}
	if len(a.of) > maxIdleAccounts+1 || len(a.of) != a.idle.Len()+1 {
		t.Errorf("%d accounts, of which %d are idle", len(a.of), a.idle.Len())
	}
	latest := a.of[holder{uid: 10_999}]
	come(10_999)
	if latest == nil || a.of[holder{uid: 10_999}] != latest {
		t.Error("who comes back at once has another account, and its rate anew")
	}
	now = now.Add(accountIdle + time.Second)
	d, _ := daemonOn(t)
	if list := a.state(d.cfg.Load(), func(holder) bool { return true }); len(list) != 1 ||
		list[0].UID != 1 || len(a.of) != 1 || a.idle.Len() != 0 {
		t.Errorf("afterwards: %+v, %d accounts", list, len(a.of))
	}
	stays.give(sessionCost)
	if a.taken != (budget.Amounts{}) {
		t.Errorf("%v are left", a.taken)
	}
}

// TestDaemonTables has every counter of the daemon in its table and in snapshots, and a key in [limits] for each kind
// of what programs can have too much of.
func TestDaemonTables(t *testing.T) {
	d, _ := daemonOn(t)
	s := d.Snapshot()
	for i := range counters.Daemon {
		if _, ok := s.Counters[counters.Daemon[i].Key]; !ok {
			t.Errorf("a snapshot has no %s", counters.Daemon[i].Key)
		}
	}
	if len(s.Counters) != len(counters.Daemon) {
		t.Errorf("the snapshot counts %v", s.Counters)
	}
	for k := range budget.Limited {
		if n := d.cfg.Load().Limits.Of(k); n <= 0 {
			t.Errorf("the limit of %v is %d", k, n)
		}
	}
}
