package daemon_test

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/engine/daemon"
	"xwarp/engine/daemon/control"
	"xwarp/engine/verbs"
)

var truncations = flag.Int("truncations", 20, "how often TestTruncatedExports cuts off a file "+
	"that is exported")

// TestTruncatedExports truncates the file of an export while a peer reads and writes it. The export must have an error
// in its state, and reject connections until a reload opens it again. The daemon must survive, and all Reads of a peer
// of another export must succeed. With -latency, the 99th percentile of their duration may be at most twice that of the
// same work without truncations.
func TestTruncatedExports(t *testing.T) {
	const size = 4 << 20
	dir := t.TempDir()
	memory, good := freePort(t), freePort(t)
	text := fmt.Sprintf(`
[[export]]
name = "memory"
listen = %q
memory = "file"
path = %q
size = %d
[[export]]
name = "good"
listen = %q
size = 65536
`, memory, filepath.Join(dir, "memory"), size, good)
	d, _ := kernel(t, text)
	p, err := dialExport(t, good)
	if err != nil {
		t.Fatal(err)
	}
	whole := p.beside(t, func() { // the same work without truncation
		for round := range *truncations {
			workMemory(t, memory, size, afterwards(round, func() error { return nil }))
		}
	})
	cut := p.beside(t, func() { cutOften(t, d, text, dir, size, memory) })
	t.Logf("the peer of another export: %v beside peers that work, %v beside %d truncations", whole,
		cut, *truncations)
	if *latency && cut.p99 > 2*whole.p99 {
		t.Error("the 99th percentile more than doubled")
	}
	if n := values(d, "contained")["region_faults"]; n < uint64(*truncations) {
		t.Errorf("%d regions were lost, by the count", n)
	}
}

// cutOften truncates the file of the export "memory" repeatedly. Each time the export must fail, and work again after a
// reload.
func cutOften(t *testing.T, d *daemon.Daemon, text, dir string, size int,
	memory netip.AddrPort) {
	state := func() (s control.ExportState) {
		v := d.Snapshot()
		for _, s = range v.Exports {
			if s.Name == "memory" {
				return s
			}
		}
		t.Errorf("no such export in %+v", v.Exports)
		return s
	}
	for round := range *truncations {
		cut := afterwards(round, func() error {
			return os.Truncate(filepath.Join(dir, "memory"), int64(round%3)*4096)
		})
		if err := workMemory(t, memory, size, cut); !terminated(err) {
			t.Errorf("round %d: the peer's connection: %v", round, err)
		}
		for end := time.Now().Add(20 * time.Second); state().Error == ""; time.Sleep(
			time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("round %d: the export does not fail: %+v", round, state())
			}
		}
		if _, err := dialExport(t, memory); !errors.Is(err, verbs.ErrRejected) {
			t.Errorf("round %d: a new connection to the failed export: %v", round, err)
		}
		now, _ := load(t, "[[interface]]\nname = \"lo\"\ntransport = \"kernel\"\n"+text)
		if err := d.ApplyConfig(now); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if s := state(); s.Error != "" || s.Size != int64(size) {
			t.Fatalf("round %d: after the reload: %+v", round, s)
		}
	}
}

// terminated reports whether a connection ended with one of the Terminates that a lost region causes.
func terminated(err error) bool {
	return errors.Is(err, rdmap.CauseCatastrophic.Errorf("")) ||
		errors.Is(err, rdmap.CauseProtSTag.Errorf("")) || errors.Is(err, ddp.CauseSTag.Errorf(""))
}

// delays has the number of one peer's Reads, and the median and the 99th percentile of their durations.
type delays struct {
	n        int
	p50, p99 time.Duration
}

func (d delays) String() string {
	return fmt.Sprintf("%d Reads, 50%% in %v, 99%% in %v", d.n, d.p50, d.p99)
}

// beside reads the export while f runs, and returns the delays of the Reads.
func (p *peer) beside(t *testing.T, f func()) delays {
	over := make(chan struct{})
	go func() {
		defer close(over)
		f()
	}()
	took := p.probe(t, over)
	return delays{len(took), took[len(took)/2], took[len(took)*99/100]}
}

// probe reads the export until over is closed. It returns the duration of each Read, sorted, and a 0 at the end, so
// that the list is not empty.
func (p *peer) probe(t *testing.T, over <-chan struct{}) (took []time.Duration) {
	for {
		select {
		case <-over:
			slices.Sort(took)
			return append(took, 0)
		default:
		}
		begin := time.Now()
		err := p.do(verbs.SendWR{Op: rdmap.WRRead, SGL: []verbs.SGE{p.MR.SGE(0, 1024)},
			RemoteSTag: p.info.STag, RemoteTO: p.info.Base})
		if err != nil {
			t.Errorf("a Read of the other export: %v (%v)", err, p.QP.Err())
			<-over
			return append(took, 0)
		}
		took = append(took, time.Since(begin))
	}
}

// afterwards runs f up to 6 ms later, depending on round. The channel receives its error.
func afterwards(round int, f func() error) <-chan error {
	done := make(chan error, 1)
	time.AfterFunc(time.Duration(round%7)*time.Millisecond, func() { done <- f() })
	return done
}

// workMemory reads and writes an export as a peer until its connection fails, and returns that error. If the connection
// survives a value from over, workMemory returns nil when it next reaches the end of the export.
func workMemory(t *testing.T, at netip.AddrPort, size int, over <-chan error) error {
	p, err := dialExport(t, at)
	if err != nil {
		t.Errorf("connecting: %v", err)
		return err
	}
	defer p.QP.Close()
	cut := false
	for off := 0; ; off = (off + 4096) % size {
		wr := verbs.SendWR{Op: rdmap.WRRead, SGL: []verbs.SGE{p.MR.SGE(0, 2048)},
			RemoteSTag: p.info.STag, RemoteTO: p.info.Base + ddp.TO(off)}
		if off%8192 == 0 {
			wr.Op = rdmap.WRWrite
		}
		if err := p.do(wr); err != nil {
			<-p.QP.Done()
			return p.QP.Err()
		}
		select {
		case err := <-over:
			if cut = true; err != nil {
				t.Error(err)
			}
		default:
			if cut && off+4096 >= size {
				return nil
			}
		}
	}
}
