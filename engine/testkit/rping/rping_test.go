package rping

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"xwarp/engine/sockets"
	"xwarp/engine/verbs"
	"xwarp/scripts/lab"
)

// ulpdus cuts a stream without markers into the ULPDUs of its FPDUs.
func ulpdus(t *testing.T, b []byte) (list [][]byte) {
	t.Helper()
	for len(b) > 0 {
		n := int(binary.BigEndian.Uint16(b))
		size := (2+n+3)/4*4 + 4
		if size > len(b) {
			t.Fatalf("an FPDU of %d bytes, %d are left", size, len(b))
		}
		list = append(list, b[2:2+n])
		b = b[size:]
	}
	return list
}

// messages joins the segments of the messages with an opcode, in one direction.
func messages(list [][]byte, opcode byte) (out [][]byte) {
	var m []byte
	for _, u := range list {
		if u[1]&15 != opcode {
			continue
		}
		head := 18
		if u[0]&0x80 != 0 {
			head = 14
		}
		m = append(m, u[head:]...)
		if u[0]&0x40 != 0 {
			out, m = append(out, m), nil
		}
	}
	return out
}

// TestAgainstRping compares our messages and data with those that two rpings of rdma-core exchanged.
func TestAgainstRping(t *testing.T) {
	for _, name := range []string{"rping-ipv4-64", "rping-ipv4-4096", "rping-ipv6-64",
		"rping-ipv4-65535"} {
		t.Run(name, func(t *testing.T) {
			conns, err := lab.Read(name)
			if err != nil {
				t.Fatal(err)
			}
			var size int
			fmt.Sscanf(name[len("rping-ipv4-"):], "%d", &size)
			_, up, err := conns[0].Up.Startup()
			if err != nil {
				t.Fatal(err)
			}
			_, down, err := conns[0].Down.Startup()
			if err != nil {
				t.Fatal(err)
			}
			client, server := ulpdus(t, up), ulpdus(t, down)
			infos := messages(client, 3)
			read, written := messages(client, 2), messages(server, 0)
			if len(infos) == 0 || len(infos) != 2*len(read) || len(read) != len(written) ||
				len(messages(server, 3)) != len(infos) {
				t.Fatalf("%d Sends, %d Read Responses, %d Writes", len(infos), len(read),
					len(written))
			}
			for i, b := range infos {
				got, err := ParseInfo(b)
				if err != nil || int(got.Size) != size || got.Addr == 0 || got.STag == 0 {
					t.Errorf("Send %d: %v, %v", i, got, err)
				}
				if !bytes.Equal(got.Append(nil), b) {
					t.Errorf("Send %d: %x came back as %x", i, b, got.Append(nil))
				}
			}
			for n := range read {
				want := make([]byte, size)
				Fill(want, n)
				if !bytes.Equal(read[n], want) || !bytes.Equal(written[n], want) {
					t.Errorf("iteration %d:\n read %.60q\n written %.60q\n want %.60q", n, read[n],
						written[n], want)
				}
			}
		})
	}
}

func TestFill(t *testing.T) {
	p := make([]byte, minSize)
	Fill(p, maxCount)
	if got := string(text(p)); got != "rdma-ping-2147483647: " {
		t.Errorf("the smallest buffer holds %q", got)
	}
	long := make([]byte, 200)
	Fill(long, 57)
	// "z" is the last letter, and the first one of iteration 57.
	if got := string(long[:20]); got != "rdma-ping-57: zABCDE" {
		t.Errorf("iteration 57 begins with %q", got)
	}
	if err := compare(long, 57); err != nil {
		t.Error(err)
	}
	long[150]++
	if err := compare(long, 57); err == nil || !strings.Contains(err.Error(), "byte 150 of 200") {
		t.Errorf("a changed byte: %v", err)
	}
	for n := range minSize {
		Fill(make([]byte, n), 1) // must not panic without room
	}
}

func open(t *testing.T, m verbs.MPAConfig) verbs.Device {
	t.Helper()
	cfg := sockets.Config{}
	cfg.MPA = m
	d, err := sockets.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func listen(t *testing.T, d verbs.Device) verbs.Listener {
	t.Helper()
	l, err := d.Listen(netip.MustParseAddrPort("127.0.0.1:0"), verbs.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func limit(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestBothSides(t *testing.T) {
	for _, tc := range []struct {
		name string
		size int
		mpa  verbs.MPAConfig
	}{
		{"64", 64, verbs.MPAConfig{}},
		{"largest", MaxSize, verbs.MPAConfig{Markers: verbs.MarkersOff}},
		{"smallest, no CRC", minSize, verbs.MPAConfig{CRC: verbs.CRCOptional}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server, client, ctx := open(t, tc.mpa), open(t, tc.mpa), limit(t)
			l := listen(t, server)
			served := make(chan Result, 1)
			go func() {
				res, err := Serve(ctx, server, l)
				if err != nil {
					t.Error(err)
				}
				served <- res
			}()
			const count = 20
			res, err := Client(ctx, client, l.Addr(), Config{Size: tc.size, Count: count})
			if err != nil {
				t.Fatal(err)
			}
			other := <-served
			if res.Iterations != count || other.Iterations != count ||
				res.Bytes != count*int64(tc.size) || other.Bytes != res.Bytes {
				t.Errorf("client %+v\nserver %+v", res, other)
			}
			if res.CRC != (tc.mpa.CRC == verbs.CRCRequired) ||
				res.MarkersIn != (tc.mpa.Markers != verbs.MarkersOff) {
				t.Errorf("terms: %+v", res)
			}
		})
	}
}

// TestWrongPeers: the server reports a peer that does not follow rping's protocol.
func TestWrongPeers(t *testing.T) {
	for _, tc := range []struct {
		name string
		info func(ctx context.Context, e *end, mr verbs.MR) error
		want string
	}{
		{"a source of 0 bytes", func(ctx context.Context, e *end, mr verbs.MR) error {
			return e.postSend(info(mr, 0))
		}, "source of 0 bytes"},
		{"a source of 64 KiB", func(ctx context.Context, e *end, mr verbs.MR) error {
			return e.postSend(Info{STag: uint32(mr.STag()), Size: 1 << 16})
		}, "source of 65536 bytes"},
		{"an unknown STag", func(ctx context.Context, e *end, mr verbs.MR) error {
			return e.postSend(Info{STag: uint32(mr.STag()) ^ 0x5500, Size: 64})
		}, "invalid STag"},
		{"a sink too small", func(ctx context.Context, e *end, mr verbs.MR) error {
			if err := e.postSend(info(mr, 64)); err != nil {
				return err
			}
			if _, err := e.await(ctx); err != nil {
				return err
			}
			return errors.Join(e.drain(ctx), e.postSend(info(mr, 63)))
		}, "sink of 63 bytes for 64"},
		{"a closed connection in the middle", func(ctx context.Context, e *end,
			mr verbs.MR) error {
			if err := e.postSend(info(mr, 64)); err != nil {
				return err
			}
			if _, err := e.await(ctx); err != nil {
				return err
			}
			return e.Disconnect(ctx)
		}, "DISCONNECTED"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server, client, ctx := open(t, verbs.MPAConfig{}), open(t, verbs.MPAConfig{}),
				limit(t)
			l := listen(t, server)
			served := make(chan error, 1)
			go func() {
				_, err := Serve(ctx, server, l)
				served <- err
			}()
			e, err := newEnd(client)
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			mr, err := e.Buffer(64, verbs.LocalWrite|verbs.RemoteRead|verbs.RemoteWrite)
			if err != nil {
				t.Fatal(err)
			}
			Fill(mr.Bytes(), 0)
			if err := client.Dial(ctx, l.Addr(), e.QP, verbs.DialConfig{}); err != nil {
				t.Fatal(err)
			}
			if err := tc.info(ctx, e, mr); err != nil {
				t.Fatal(err)
			}
			if err := <-served; err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the server says %v, want %q", err, tc.want)
			}
		})
	}
}
