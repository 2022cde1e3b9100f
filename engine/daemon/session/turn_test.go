package session

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"xwarp/engine/budget"
	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
	"xwarp/tcp/tick"
)

// unixPair returns both ends of a control socket.
func unixPair(t *testing.T) (ends [2]*net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "control socket")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		ends[i] = c.(*net.UnixConn)
	}
	return ends
}

// TestRequestsTakeTurns: a request waits while another session of its user executes one, but not for requests of other
// users, nor for one that waits for its peer.
func TestRequestsTakeTurns(t *testing.T) {
	ends := unixPair(t)
	synctest.Test(t, func(t *testing.T) {
		users := budget.NewUsers(2, func() tick.Time { return 0 })
		account := func(uid uint32) *budget.Account {
			a, err := users.Enter(budget.Holder{UID: uid}, new(config.Limits), budget.Amounts{})
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		one, other := account(1), account(2)
		s := New(nil, Config{Conn: ends[0], Cred: new(unix.Ucred), Account: one,
			Log: slog.New(slog.DiscardHandler)})
		defer s.cancel(ErrShutdown)
		var answered atomic.Int32
		ask := func(op control.Op) {
			go func() {
				s.dispatch(fmt.Appendf(nil, `{"id":1,"op":%q,"args":{"handle":7}}`, op), nil)
				answered.Add(1)
			}()
			synctest.Wait()
		}
		other.Enter(budget.RequestTurn)
		ask(control.OpQuerySRQ)
		if answered.Load() != 1 {
			t.Error("a request waits for the turn of another user")
		}
		one.Enter(budget.RequestTurn)
		ask(control.OpQuerySRQ)
		if answered.Load() != 1 {
			t.Error("a request does not wait for its user's turn")
		}
		one.Leave(budget.RequestTurn)
		synctest.Wait()
		if answered.Load() != 2 {
			t.Error("a request still waits after its user's turn")
		}
		leave := s.enterTurn(true)
		ask(control.OpDestroySRQ)
		if answered.Load() != 2 {
			t.Error("two requests of one user are executed at a time")
		}
		time.Sleep(turnTime)
		synctest.Wait()
		if answered.Load() != 3 {
			t.Error("a request that waits for its peer blocks others of its user")
		}
		leave() // its turn has ended
		one.Enter(budget.RequestTurn)
		ask(control.OpQuerySRQ)
		if answered.Load() != 3 {
			t.Error("the end of a turn was counted twice")
		}
		one.Leave(budget.RequestTurn)
	})
}
