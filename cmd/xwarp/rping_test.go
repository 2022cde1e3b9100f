package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// freePort is a port that nothing listens on now.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// listening is a writer that says when the server can be reached.
type listening struct {
	bytes.Buffer
	at chan struct{}
}

func (l *listening) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "listening on") {
		close(l.at)
	}
	return l.Buffer.Write(p)
}

func TestRping(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	port := freePort(t)
	var served bytes.Buffer
	said := &listening{at: make(chan struct{})}
	status := make(chan int, 1)
	go func() {
		status <- execute(ctx, []string{"rping", "-s", "-V", "-v", "-a", "127.0.0.1", "-p", port,
			"--transport", "kernel"}, &served, said)
	}()
	<-said.at
	var out, stderr bytes.Buffer
	if got := execute(ctx, []string{"rping", "-c", "-V", "-q", "-C", "3", "-S", "30", "-a",
		"localhost", "-p", port, "--transport", "kernel",
		"--no-markers", "--json"}, &out, &stderr); got != exitOK {
		t.Fatalf("client: status %d\n%s", got, stderr.String())
	}
	if got := <-status; got != exitOK {
		t.Fatalf("server: status %d\n%s", got, said.String())
	}
	var res rpingResult
	if err := json.Unmarshal(out.Bytes(), &res); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if !res.OK || res.Role != "client" || res.Iterations != 3 || res.Bytes != 90 ||
		!res.Validated || !res.CRC || res.MarkersIn || res.MarkersOut || res.Micros <= 0 {
		t.Errorf("client: %+v", res)
	}
	for _, want := range []string{"server ping data: rdma-ping-2: CDEFGHIJKLMNOPQR\n",
		"3 iterations of 30 bytes", "markers out off, in off, CRC on; every byte is right"} {
		if !strings.Contains(served.String(), want) {
			t.Errorf("server's output lacks %q:\n%s", want, served.String())
		}
	}
}

func TestRpingUsage(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"", "-s (server) or -c (client)"},
		{"-s -c", "-s (server) or -c (client)"},
		{"-c", "where is the server?"},
		{"-c -a 192.0.2.1 -S 64KiB", "64 KiB minus 1"},
		{"-c -a 192.0.2.1 -S 22", "23 to 65535"},
		{"-c -a 192.0.2.1 -C -1", "not in 0 to"},
		{"-c -a 192.0.2.1 -P", "-P is for the server"},
		{"-s -I 192.0.2.1", "-I is for the client"},
		{"-s --transport tcp", "need xdp, kernel or daemon"},
		{"-s extra", "unexpected argument"},
	} {
		var out, stderr bytes.Buffer
		if got := execute(t.Context(), append([]string{"rping"}, strings.Fields(tc.args)...), &out,
			&stderr); got != exitUsage || !strings.Contains(stderr.String(), tc.want) {
			t.Errorf("rping %s: status %d, %q; want %q", tc.args, got, stderr.String(), tc.want)
		}
	}
}
