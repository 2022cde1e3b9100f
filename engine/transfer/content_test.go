package transfer

import (
	"context"
	"crypto/sha256"
	"errors"
	"testing"

	"golang.org/x/sync/semaphore"
)

// Concurrent gets of one length compute its SHA-256 once. If the client that computes it leaves, another takes over.
func TestChecksumIsComputedOnce(t *testing.T) {
	c := newContent(make([]byte, 100), 100, nil)
	begun, gone := make(chan int, 10), make(chan bool)
	away := errors.New("the client is gone")
	hash := func(ctx context.Context, b []byte) (Sum, error) {
		begun <- len(b)
		select {
		case <-gone:
			return Sum{}, away
		case <-ctx.Done():
			return sha256.Sum256(b), nil
		}
	}
	results := make(chan error, 3)
	now, cancel := context.WithCancel(t.Context())
	for range 3 {
		go func() {
			sum, err := c.checksum(context.WithoutCancel(now), 50,
				func(_ context.Context, b []byte) (Sum, error) {
					return hash(now, b)
				})
			if err == nil && sum != sha256.Sum256(make([]byte, 50)) {
				err = errors.New("a wrong sum")
			}
			results <- err
		}()
	}
	<-begun
	gone <- true
	if err := <-results; !errors.Is(err, away) {
		t.Errorf("the first: %v", err)
	}
	<-begun
	cancel() // the second one finishes
	for range 2 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if len(begun) != 0 {
		t.Error("computed a third time")
	}
}

// Many different lengths do not fill the memory, and do not evict the SHA-256 of the whole content.
func TestDigestsAreBounded(t *testing.T) {
	c := newContent(make([]byte, 1000), 1000, nil)
	c.know(Sum{1})
	hash := func(_ context.Context, b []byte) (Sum, error) { return Sum{byte(len(b))}, nil }
	for n := range int64(500) {
		if _, err := c.checksum(t.Context(), n, hash); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.digests) > maxDigests || c.digests[1000].sum != (Sum{1}) {
		t.Errorf("%d digests, the whole one is %v", len(c.digests), c.digests[1000].sum)
	}
}

// A short SHA-256 does not wait for a long one, and none is computed for a client that has left.
func TestHashTakesTurns(t *testing.T) {
	long, err := mapAnonymous(1<<30, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{hashing: semaphore.NewWeighted(1)}
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := s.hash(ctx, long)
		ended <- err
	}()
	for range 8 {
		if sum, err := s.hash(t.Context(), []byte("x")); err != nil ||
			sum != sha256.Sum256([]byte("x")) {
			t.Error(sum, err)
		}
	}
	away := errors.New("the client is gone")
	cancel(away)
	if err := <-ended; !errors.Is(err, away) {
		t.Errorf("the long one ended with %v, before the short ones or despite its client", err)
	}
}
