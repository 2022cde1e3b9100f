package main

import (
	"bufio"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"xwarp/bench/topo"
	"xwarp/cmd/xwarp/bench"
)

// benchServer starts a bench test without an address, that is, as the server, on h. It returns when the server waits
// for its client.
func benchServer(t *testing.T, h *topo.Host, args ...string) *command {
	t.Helper()
	c := onHost(t, h, append([]string{"bench"}, args...)...)
	r, w := io.Pipe()
	c.Cmd.Stderr = io.MultiWriter(w, &c.stderr)
	c.start(t, h)
	lines := bufio.NewReader(r)
	if line, err := lines.ReadString('\n'); err != nil ||
		!strings.Contains(line, "Waiting for client") {
		t.Fatalf("server said %q: %v", line, err)
	}
	go io.Copy(io.Discard, lines)
	return c
}

// TestBenchBetweenHosts runs three tests between two hosts, one of them with a client on kernel TCP. Both ends must
// print the results of the client's parameters, and the parameter in which the ends differ.
func TestBenchBetweenHosts(t *testing.T) {
	for _, tc := range []struct {
		name           string
		server, client []string
		test           string
		iterations     uint64
		differs        string
	}{
		{"blocks", []string{"write_bw", "--tx=packet-gso", "--sleep"},
			[]string{"write_bw", "--tx=packet-gso", "--sleep", "--markers=false", "-s", "65536",
				"-n", "100"}, "WRITE_BW", 100, "--markers"},
		{"kernel to xdp", []string{"send_bw", "--sleep"}, []string{"send_bw", "--transport=kernel",
			"-n", "100"}, "SEND_BW", 100, "-n"},
		{"latency", []string{"read_lat", "--sleep"}, []string{"read_lat", "--sleep", "-n", "20",
			"--gc"}, "READ_LAT", 20, "-n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			net := hosts(t, topo.NoOffloads, topo.NoOffloads)
			srv := benchServer(t, net.B, append(tc.server, "--json")...)
			c := onHost(t, net.A, append(append([]string{"bench"}, tc.client...), "--json",
				net.B.Addr4.Addr().String())...)
			if err := c.run(t, net.A); err != nil {
				t.Fatalf("client: %v\n%s\nserver: %s", err, &c.stderr, &srv.stderr)
			}
			if err := srv.Wait(); err != nil {
				t.Fatalf("server: %v\n%s", err, &srv.stderr)
			}
			for who, text := range map[string]string{"client": c.stdout.String(),
				"server": srv.stdout.String()} {
				var o bench.Output
				if err := json.Unmarshal([]byte(text), &o); err != nil {
					t.Fatalf("%s printed %q: %v", who, text, err)
				}
				if o.TestInfo.Test != tc.test || len(o.Results) != 1 ||
					o.Results[0].Iterations != tc.iterations {
					t.Errorf("%s: %s", who, text)
				}
				if l := &o.Results[0]; l.Average <= 0 && l.Typical <= 0 {
					t.Errorf("%s measured nothing: %s", who, text)
				}
				if !strings.Contains(strings.Join(o.Differences, "\n"), tc.differs+":") {
					t.Errorf("%s: the ends differ in %s, and it says %q", who, tc.differs,
						o.Differences)
				}
				if !strings.Contains(text, `"allocations":`) ||
					!strings.Contains(text, `"gc_cycles":`) {
					t.Errorf("%s prints no use of memory: %s", who, text)
				}
			}
		})
	}
}

// TestBenchTable: the output of the client has the columns of perftest, and the garbage collector's work.
func TestBenchTable(t *testing.T) {
	net := hosts(t, topo.NoOffloads, topo.NoOffloads)
	srv := benchServer(t, net.B, "write_bw", "--sleep", "-s", "4096", "-n", "50")
	c := onHost(t, net.A, "bench", "write_bw", "--sleep", "-s", "4096", "-n", "50",
		net.B.Addr4.Addr().String())
	if err := c.run(t, net.A); err != nil {
		t.Fatalf("client: %v\n%s", err, &c.stderr)
	}
	if err := srv.Wait(); err != nil {
		t.Fatalf("server: %v\n%s", err, &srv.stderr)
	}
	for _, want := range []string{" 4096       50 ", "BW average[MiB/sec]", "BW average[Gb/sec]",
		"garbage collections, 50 messages"} {
		if !strings.Contains(c.stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, &c.stdout)
		}
	}
}
