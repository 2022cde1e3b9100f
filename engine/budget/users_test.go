package budget

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"xwarp/tcp/tick"
)

// unlimited implements Limits with 1<<60 of each kind.
type unlimited struct{}

func (unlimited) Of(Kind) int64 { return 1 << 60 }

// single is one object of a kind.
func single(k Kind) (a Amounts) {
	a[k] = 1
	return a
}

// fill lets users, one after another, take as many objects of a kind as they can, in ever smaller steps.
func fill(t *testing.T, a *Users, k Kind, users int) {
	t.Helper()
	var want Amounts
	for uid := range uint32(users) {
		for want[k] = max(1, a.shared[k]); want[k] > 0; {
			if _, err := a.Enter(Holder{UID: 1000 + uid}, unlimited{}, want); err != nil {
				want[k] /= 2
			}
		}
	}
}

// TestEachKindIsBounded: each kind is limited for a user, by a key of [limits] or by a share of the total. Of a kind
// with a total, users can neither prevent the operator from creating objects, nor take all objects before another user
// comes.
func TestEachKindIsBounded(t *testing.T) {
	for k := range Kinds {
		t.Run(k.String(), func(t *testing.T) {
			a := NewUsers(2, func() tick.Time { return 0 })
			a.shared = HostBounds()
			a.shared[Sessions] = 512
			if k >= Limited && a.shared[k] == 0 {
				t.Fatal("neither a limit nor a share bounds it")
			}
			if a.shared[k] == 0 {
				return // only the limits of each user bound this kind: users do not compete for it
			}
			const greedy = 40
			fill(t, a, k, greedy)
			if a.inUse[k] > a.shared[k] {
				t.Errorf("%d in use, of %d", a.inUse[k], a.shared[k])
			}
			if first := a.accounts[Holder{UID: 1000}].used[k]; first > (a.shared[k]+1)/2 {
				t.Errorf("the first user has %d of %d", first, a.shared[k])
			}
			if _, err := a.Enter(Holder{UID: 7}, unlimited{}, single(k)); err != nil {
				t.Errorf("another user: %v", err)
			}
			_, err := a.Enter(Holder{UID: 1000}, unlimited{}, single(k))
			quotaText(t, err, k.Remedy())
			fill(t, a, k, 1000)
			var much Amounts
			much[k] = a.shared[k]
			if _, err := a.Enter(Holder{Operator: true}, nil, much); err != nil {
				t.Errorf("the operator: %v", err)
			}
			if a.inUse[k] > a.shared[k] {
				t.Errorf("%d in use, of %d", a.inUse[k], a.shared[k])
			}
		})
	}
}

func quotaText(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || want == "" || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want an error that says %q", err, want)
	}
}

// TestTenantsKeepTheirs: users and other tenants cannot take what a tenant is promised, of any kind with a bound of the
// host, even if the host has too little for the limits. SetBounds reports the kinds of which the promise is below the
// limit.
func TestTenantsKeepTheirs(t *testing.T) {
	const n = 8
	host := HostBounds()
	var limits Amounts
	for k := range limits {
		limits[k] = 1024
	}
	limits[DaemonMemory] = host[DaemonMemory] / 100
	for k := range Kinds {
		if host[k] == 0 {
			continue
		}
		for _, scarce := range []bool{false, true} {
			a := NewUsers(2, func() tick.Time { return 0 })
			with := host
			if scarce {
				with[k] = 100
			}
			short := a.SetBounds(Bounds{Host: with, Sessions: 512, Tenants: n, Tenant: limits})
			isShort := slices.ContainsFunc(short, func(s Shortage) bool { return s.Kind == k })
			if isShort != (a.tenantShare[k] < limits[k]) || scarce && !isShort {
				t.Errorf("%v, scarce %v: said to be short: %v", k, scarce, short)
			}
			fill(t, a, k, 100)
			var want Amounts
			want[k] = a.tenantShare[k]
			if want[k] == 0 {
				t.Errorf("%v: no promise to tenants", k)
			}
			for i := range n {
				h := Holder{Tenant: fmt.Sprintf("tenant-%d", i)}
				if _, err := a.Enter(h, unlimited{}, want); err != nil {
					t.Errorf("%v, scarce %v: %v", k, scarce, err)
				}
				_, err := a.Enter(h, unlimited{}, single(k))
				quotaText(t, err, k.Remedy())
			}
			if sum := a.inUse[k] + n*a.tenantShare[k]; sum > with[k] {
				t.Errorf("%v: users and tenants have %d of %d", k, sum, with[k])
			}
		}
	}
}

// TestAccountsAreForgotten: at most MaxIdleUsers accounts without a session are kept, and only for UserIdle. A user
// that returns earlier has the same account, so its rate goes on.
func TestAccountsAreForgotten(t *testing.T) {
	a := NewUsers(2, func() tick.Time { return 0 })
	var now tick.Time
	a.now = func() tick.Time { return now }
	session := Amounts{Sessions: 1, DaemonMemory: SessionMemory, Descriptors: 3}
	a.shared[Sessions] = 512
	come := func(uid uint32) {
		u, err := a.Enter(Holder{UID: uid}, unlimited{}, session)
		if err != nil {
			t.Fatal(err)
		}
		u.Release(session)
	}
	stays, err := a.Enter(Holder{UID: 1}, unlimited{}, session)
	if err != nil {
		t.Fatal(err)
	}
	for uid := range uint32(10_000) {
		come(1000 + uid)
	}
	if len(a.accounts) > MaxIdleUsers+1 || len(a.accounts) != a.idle.len()+1 {
		t.Errorf("%d accounts, of which %d are idle", len(a.accounts), a.idle.len())
	}
	latest := a.accounts[Holder{UID: 10_999}]
	come(10_999)
	if latest == nil || a.accounts[Holder{UID: 10_999}] != latest {
		t.Error("a user that returns at once gets a new account with a full rate")
	}
	now = now.Add(UserIdle + time.Second)
	if list := a.State(func(Holder) Limits { return unlimited{} },
		func(Holder) bool { return true }); len(list) != 1 ||
		list[0].UID != 1 || len(a.accounts) != 1 || a.idle.len() != 0 {
		t.Errorf("afterwards: %+v, %d accounts", list, len(a.accounts))
	}
	stays.Release(session)
	if a.inUse != (Amounts{}) {
		t.Errorf("%v are left", a.inUse)
	}
}
