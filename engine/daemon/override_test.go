package daemon_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"xwarp/engine/daemon/client"
	"xwarp/engine/internal/core"
	"xwarp/engine/sockets"
	"xwarp/engine/testkit/verbstest"
	"xwarp/engine/verbs"
)

// TestOverride: programs request connections without CRC and without markers, to a peer that accepts anything. They get
// only what the configuration lets them change.
func TestOverride(t *testing.T) {
	peer, err := sockets.Open(
		sockets.Config{Options: core.Options{MPA: verbs.MPAConfig{CRC: verbs.CRCOptional}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close() })
	at := listenAddr(t)
	responder(t, peer, at, 100)
	type want struct{ crc, markers bool }
	asked := &verbs.MPAConfig{CRC: verbs.CRCOptional, Markers: verbs.MarkersOff}
	for _, tc := range []struct {
		config string
		mpa    *verbs.MPAConfig
		want   want
	}{
		{"", nil, want{true, true}},
		{"", asked, want{true, false}},
		{"override = []\n", asked, want{true, true}},
		{"override = [\"crc\"]\n", asked, want{false, true}},
		{"crc = false\n", asked, want{false, false}},
		{"crc = false\n", &verbs.MPAConfig{}, want{true, true}}, // a program may always request the stricter value
		{"crc = false\n[[peer]]\nprefix = \"127.0.0.0/8\"\ncrc = true\n", asked, want{true, false}},
	} {
		_, socket := kernel(t, "[mpa]\n"+tc.config)
		for _, who := range []client.Config{{Path: socket}, {Path: socket, Operator: true}} {
			got, err := connectAs(t, who, at, tc.mpa)
			if err != nil {
				t.Fatal(err)
			}
			if have := (want{got.Params().Send.CRC,
				got.Params().Receive.Markers}); have != tc.want {
				t.Errorf("%q, requested %+v, operator %v: %+v, want %+v", tc.config, tc.mpa,
					who.Operator, have, tc.want)
			}
		}
	}
}

// connectAs connects a queue pair of a new program, which uses the MPA settings mpa.
func connectAs(t *testing.T, who client.Config, at netip.AddrPort, mpa *verbs.MPAConfig) (
	verbs.QP, error) {
	t.Helper()
	dev, err := client.OpenConfig(who)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { dev.Close() })
	p, err := verbstest.Make(dev, 4096)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := dev.Dial(ctx, at, p.QP, verbs.DialConfig{MPA: mpa}); err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	return p.QP, nil
}
