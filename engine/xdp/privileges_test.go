package xdp

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPrivilegesRunOut: without a spare socket and without the privilege to create one, the error wraps ErrSpent and
// the cause. A nil Privileges has nothing, and can be closed.
func TestPrivilegesRunOut(t *testing.T) {
	k := NewPrivileges(1)
	defer k.Close()
	k.filled = true
	k.sockets = []int{-7}
	forbidden := func() (int, error) { return -1, unix.EPERM }
	if fd, err := k.takeSocket(&k.sockets, forbidden); fd != -7 || err != nil {
		t.Errorf("the one that there is: %d, %v", fd, err)
	}
	_, err := k.takeSocket(&k.sockets, forbidden)
	if !errors.Is(err, ErrSpent) || !errors.Is(err, unix.EPERM) {
		t.Errorf("one more: %v", err)
	}
	var none *Privileges
	if none.Close() != nil || none.space() != nil {
		t.Error("a nil Privileges holds something")
	}
}
