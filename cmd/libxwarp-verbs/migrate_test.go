package libxwarpverbs_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// guestMiB is the memory of a guest.
const guestMiB = 64

// busyGuest is a boot sector that fills memory from 64 KiB to 512 KiB with growing numbers in an endless loop. After
// each round it toggles a bit of cr0, which flushes the TLB of the emulated CPU. Without that, QEMU 7.2 misses pages
// written before it first queries the dirty pages.
var busyGuest = append([]byte{
	0x31, 0xc0, //                   xor ax, ax
	0xbb, 0x00, 0x10, //             mov bx, 0x1000
	0x8e, 0xc3, //             next: mov es, bx
	0x31, 0xff, //                   xor di, di
	0xb9, 0x00, 0x80, //             mov cx, 0x8000
	0xf3, 0xab, //                   rep stosw
	0x40,                   //       inc ax
	0x81, 0xc3, 0x00, 0x10, //       add bx, 0x1000
	0x81, 0xfb, 0x00, 0x80, //       cmp bx, 0x8000
	0x75, 0xec, //                   jne next
	0x0f, 0x20, 0xc2, //             mov edx, cr0
	0x66, 0x81, 0xf2, 0x00, 0x00, 0x01, 0x00, // xor edx, 0x10000
	0x0f, 0x22, 0xc2, //             mov cr0, edx
	0xbb, 0x00, 0x10, //             mov bx, 0x1000
	0xeb, 0xda, //                   jmp next
}, append(make([]byte, 467), 0x55, 0xaa)...)

// guest is a QEMU process with its monitor.
type guest struct {
	*program
	conn net.Conn
	in   *json.Decoder
}

// startGuest starts a guest on e. more is added to its command line.
func (e *end) startGuest(t testing.TB, peer *end, more ...string) *guest {
	t.Helper()
	d := scratch(t)
	disk, monitor := filepath.Join(d, "boot"), filepath.Join(d, "monitor")
	if err := os.WriteFile(disk, busyGuest, 0o644); err != nil {
		t.Fatal(err)
	}
	g := &guest{program: e.startWords(t, append([]string{
		"qemu-system-x86_64", "-machine", "pc", "-accel", "tcg", "-m", fmt.Sprint(guestMiB),
		"-nodefaults", "-display", "none",
		"-drive", "if=floppy,format=raw,readonly=on,file=" + disk,
		"-qmp", "unix:" + monitor + ",server=on,wait=off",
	}, more...), peer)}
	e.until(t, g.program, "answers", func() (ok bool) {
		var err error
		g.conn, err = net.Dial("unix", monitor)
		return err == nil
	})
	t.Cleanup(func() { g.conn.Close() })
	g.in = json.NewDecoder(g.conn)
	g.ask(t, "qmp_capabilities", nil)
	return g
}

// ask runs a command in the monitor.
func (g *guest) ask(t testing.TB, what string, arguments any) map[string]any {
	t.Helper()
	g.conn.SetDeadline(time.Now().Add(patience))
	m := map[string]any{"execute": what}
	if arguments != nil {
		m["arguments"] = arguments
	}
	if err := json.NewEncoder(g.conn).Encode(m); err != nil {
		t.Fatal(err)
	}
	for {
		var answer struct {
			Return any
			Error  any
		}
		if err := g.in.Decode(&answer); err != nil {
			t.Fatalf("%s: %v\n%s", what, err, g.out.String())
		}
		if answer.Error != nil {
			t.Fatalf("%s: %v\n%s", what, answer.Error, g.out.String())
		}
		if answer.Return != nil { // else it is an event, or the greeting
			m, _ := answer.Return.(map[string]any)
			return m
		}
	}
}

// memory returns the content of the guest's memory.
func (g *guest) memory(t testing.TB) []byte {
	t.Helper()
	file := filepath.Join(scratch(t), "memory")
	g.ask(t, "pmemsave", map[string]any{"val": 0, "size": guestMiB << 20, "filename": file})
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// differing counts the pages that differ.
func differing(a, b []byte) (n int) {
	const page = 4096
	for i := 0; i < len(a); i += page {
		if !bytes.Equal(a[i:i+page], b[i:i+page]) {
			n++
		}
	}
	return n
}

// TestMigration migrates a QEMU guest that keeps writing to its memory from one host to the other over RDMA: by Writes
// into chunks of memory registered on demand, and into memory registered as a whole.
func TestMigration(t *testing.T) {
	for _, pinned := range []bool{false, true} {
		t.Run(fmt.Sprintf("rdma-pin-all=%v", pinned), func(t *testing.T) {
			a, b := pair(t)
			capabilities := map[string]any{"capabilities": []any{
				map[string]any{"capability": "rdma-pin-all", "state": pinned},
			}}
			from := a.startGuest(t, b)
			to := b.startGuest(t, a, "-S", "-incoming", "defer")
			from.ask(t, "migrate-set-capabilities", capabilities)
			from.ask(t, "migrate-set-parameters", map[string]any{
				"downtime-limit": patience.Milliseconds(), // the guest must not outrun a slow host
			})
			to.ask(t, "migrate-set-capabilities", capabilities)
			to.ask(t, "migrate-incoming", map[string]any{"uri": "rdma:" + b.addr + ":4444"})
			from.ask(t, "migrate", map[string]any{"uri": "rdma:" + b.addr + ":4444"})
			var last map[string]any
			a.until(t, from.program, "migrated its guest", func() bool {
				last = from.ask(t, "query-migrate", nil)
				if last["status"] == "failed" {
					t.Fatalf("%v\n%s\n%s", last, from.out.String(), to.out.String())
				}
				return last["status"] == "completed"
			})
			b.until(t, to.program, "has the guest", func() bool {
				return to.ask(t, "query-status", nil)["status"] == "paused"
			})
			here, there := from.memory(t), to.memory(t)
			if n := differing(here, there); n > 0 {
				t.Errorf("%d pages of the guest are not what they were", n)
			}
			if n, _ := last["ram"].(map[string]any)["dirty-sync-count"].(float64); n < 2 {
				t.Errorf("the guest wrote nothing meanwhile: %v", last)
			}
		})
	}
}
