package verbs_test

import (
	"context"
	"errors"
	"syscall"
	"testing"

	"xwarp/engine/sockets"
	"xwarp/engine/verbs"
	"xwarp/mpa/ulpdu"
)

// TestEndpointTellsTheCause: if the peer refuses a work request, Do returns an error that wraps the Terminate that
// ended the connection. Disconnect or the peer returns an error, too.
func TestEndpointTellsTheCause(t *testing.T) {
	err := pair(func(ctx context.Context, e *verbs.Endpoint, mr verbs.MR,
		peer verbs.RemoteMR) error {
		_, err := e.Do(ctx, &verbs.SendWR{Op: verbs.WRRead, SGL: []verbs.SGE{mr.SGE(0, 8)},
			RemoteSTag: ^peer.STag})
		var terminate *ulpdu.Error
		if !errors.As(err, &terminate) {
			t.Errorf("Do: %v, want the Terminate", err)
		}
		return nil
	})
	if err == nil {
		t.Error("both ends treat the Terminate as a graceful close")
	}
}

// TestEndpointReleasesMemoryOnce: Deregister does not call the release function of a region, because the memory is the
// caller's again. Close calls that of each region that is still registered, once even if Close is called twice.
// SharedCQ makes one completion queue for both directions, and RemoteMR returns ErrNotReady without a connection.
func TestEndpointReleasesMemoryOnce(t *testing.T) {
	e, err := verbs.NewEndpoint(device(t), verbs.EndpointConfig{SharedCQ: true})
	if err != nil {
		t.Fatal(err)
	}
	if e.SendCQ != e.RecvCQ {
		t.Error("SharedCQ created two completion queues")
	}
	var released [2]int
	for i := range released {
		mr, err := e.Register(make([]byte, 64), verbs.LocalWrite, func() error {
			released[i]++
			return nil
		})
		if err == nil && i == 0 {
			err = e.Deregister(mr)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.RemoteMR(); !errors.Is(err, verbs.ErrNotReady) {
		t.Errorf("RemoteMR without a connection: %v", err)
	}
	if err := errors.Join(e.Close(), e.Close()); err != nil || released != [2]int{0, 1} {
		t.Errorf("%v; released %v times, want the second region alone", err, released)
	}
}

// TestNewEndpointTakesItsPartsBack: a failed creation returns only its cause. If a part of the endpoint were left,
// closing the protection domain would add EBUSY to the error.
func TestNewEndpointTakesItsPartsBack(t *testing.T) {
	_, err := verbs.NewEndpoint(device(t), verbs.EndpointConfig{QPConfig: verbs.QPConfig{
		MaxSGE: 1 << 20}})
	if !errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EBUSY) {
		t.Errorf("NewEndpoint: %v, want EINVAL alone", err)
	}
}

func device(t *testing.T) verbs.Device {
	dev, err := sockets.Open(sockets.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}
