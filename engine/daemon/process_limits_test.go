package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"xwarp/ddp/rdmap"
	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/control"
	"xwarp/engine/sockets"
	"xwarp/engine/verbs"
)

// greedy has configurations of queue pairs. Each makes the daemon use its memory in another way.
var greedy = map[string]verbs.QPConfig{
	"small":  {SendDepth: 1, RecvDepth: 1, MaxSGE: 1, MaxInline: 1, IRD: 1, ORD: 1},
	"usual":  {},
	"inline": {SendDepth: 1024, RecvDepth: 1, MaxSGE: 1, MaxInline: 4096, IRD: 1, ORD: 1},
	"pieces": {SendDepth: 2048, RecvDepth: 2048, MaxSGE: 16, MaxInline: 1, IRD: 4096, ORD: 4096},
}

// greedyRole creates as many queue pairs as it can, connects them, and uses all their memory. Then it replaces the
// oldest in a loop. Its arguments: the socket, the peer's address, a name of greedy. It prints the number of queue
// pairs.
func greedyRole(args []string) error {
	g := &greedyProgram{at: netip.MustParseAddrPort(args[1]), cfg: greedy[args[2]]}
	if err := g.open(args[0]); err != nil {
		return err
	}
	for {
		err := g.more()
		var e *control.Error
		switch {
		case err == nil:
			continue
		case !errors.As(err, &e) || e.Code != control.CodeQuota:
			return fmt.Errorf("after %d queue pairs: %w", len(g.qps), err)
		}
		break
	}
	fmt.Println(len(g.qps))
	for {
		if err := g.qps[0].Close(); err != nil {
			return err
		}
		g.qps = g.qps[1:]
		if err := g.more(); err != nil {
			return err
		}
	}
}

type greedyProgram struct {
	at  netip.AddrPort
	cfg verbs.QPConfig
	dev *client.Device
	mem []byte
	qps []verbs.QP
}

func (g *greedyProgram) open(socket string) (err error) {
	var e [4]error
	g.dev, e[0] = client.Open(socket)
	if e[0] != nil {
		return e[0]
	}
	g.cfg.PD, e[1] = g.dev.AllocPD()
	g.cfg.SendCQ, e[2] = g.dev.CreateCQ(4096)
	g.mem, e[3] = g.dev.Alloc(4096)
	g.cfg.RecvCQ = g.cfg.SendCQ
	return errors.Join(e[:]...)
}

// more connects a new queue pair, and uses every slot of its send queue twice.
func (g *greedyProgram) more() error {
	qp, err := g.dev.CreateQP(g.cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := g.dev.Dial(ctx, g.at, qp, verbs.DialConfig{}); err != nil {
		return err
	}
	g.qps = append(g.qps, qp)
	wr := verbs.SendWR{Op: rdmap.WRWrite, Flags: rdmap.Signaled,
		Inline: g.mem[:max(g.cfg.MaxInline, 1)], RemoteSTag: peerSTag(qp.Params().PrivateData)}
	for range 2 * max(g.cfg.SendDepth, 1) {
		if err := qp.PostSend(&wr); err != nil {
			return err
		}
		if _, err := g.cfg.SendCQ.Wait(ctx, make([]verbs.Completion, 1)); err != nil {
			return err
		}
	}
	return nil
}

// status returns the sum of fields of /proc/PID/status, with memory in bytes.
func status(t testing.TB, pid int, fields ...string) (sum int64) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		for _, f := range fields {
			if name != f {
				continue
			}
			n, unit := strings.CutSuffix(strings.TrimSpace(value), " kB")
			v, err := strconv.ParseInt(n, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if unit {
				v <<= 10
			}
			sum += v
		}
	}
	return sum
}

// TestProcessLimits: a user takes all memory that daemon_memory allows, with queue pairs of one kind, and then replaces
// them in a loop. Meanwhile the daemon may use at most a tenth more than the limit in addition to its idle memory, by
// /proc. It must start at most 32 threads.
func TestProcessLimits(t *testing.T) {
	const limit = 96 << 20
	exe := publicExe(t)
	for name := range greedy {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			peer, err := sockets.Open(sockets.Config{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { peer.Close() })
			at := listenAddr(t)
			responder(t, peer, at, 8000)
			path, socket := writeConfig(t, fmt.Sprintf("[[interface]]\nname = \"lo\"\ntransport "+
				"= \"kernel\"\n[limits]\ndaemon_memory = %d\n", limit))
			d := start(t, "/proc/self/exe", 0, "daemon", "/proc/self/ns/net", path)
			if got := d.line(); got != "ready" {
				t.Fatal(got)
			}
			memory, threads := status(t, d.Process.Pid, "RssAnon"),
				status(t, d.Process.Pid, "Threads")
			p := start(t, exe, nobody, "greedy", socket, at.String(), name)
			said := p.line()
			if n, err := strconv.Atoi(said); err != nil || n == 0 {
				t.Fatalf("the program: %s", said)
			}
			dev, err := client.OpenConfig(client.Config{Path: socket, Operator: true})
			if err != nil {
				t.Fatal(err)
			}
			defer dev.Close()
			s, err := dev.Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var used int64
			for _, u := range s.Users {
				if u.UID == nobody && u.Resource == "daemon_memory" {
					used = u.Used
				}
			}
			var more int64
			for range 200 { // while queue pairs come and go
				more = max(more, status(t, d.Process.Pid, "RssAnon")-memory)
				time.Sleep(10 * time.Millisecond)
			}
			threads = status(t, d.Process.Pid, "Threads") - threads
			t.Logf("%s queue pairs: %d MiB counted, at most %d MiB more in the process, %d "+
				"threads more", said, used>>20, more>>20, threads)
			if used > limit || more > limit*11/10 {
				t.Errorf("a limit of %d bytes: %d are counted, the process has %d more", limit,
					used, more)
			}
			if threads > 32 {
				t.Errorf("%d threads more for one session", threads)
			}
		})
	}
}
