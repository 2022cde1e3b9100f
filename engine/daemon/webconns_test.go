package daemon

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const scrapeRequest = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"

// sieges are ways in which a client can hold a connection of the HTTP server.
var sieges = map[string]func(c net.Conn){
	"silent": func(net.Conn) {},
	"silent after a request": func(c net.Conn) {
		io.WriteString(c, scrapeRequest)
		c.SetReadDeadline(time.Now().Add(time.Second))
		c.Read(make([]byte, 100))
	},
	"slow headers": func(c net.Conn) {
		go func() {
			for _, b := range strings.Repeat("GET / HTTP/1.1\r\nX: ", 10) {
				if _, err := c.Write([]byte{byte(b)}); err != nil {
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		}()
	},
	"slow readers": func(c net.Conn) {
		go io.WriteString(c, strings.Repeat(scrapeRequest, 1000)) // until the responses fill the socket
	},
}

// TestWebUnderSiege: however a local user holds connections, metrics can be scraped within the timeout of a monitor,
// and an open connection of another user stays open.
func TestWebUnderSiege(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		for name, siege := range sieges {
			t.Run(network+" "+name, func(t *testing.T) {
				dir := t.TempDir()
				for at := dir; at != os.TempDir(); at = filepath.Dir(at) {
					os.Chmod(at, 0o755)
				}
				address := filepath.Join(dir, "http")
				if network == "tcp" {
					address = freeAddress(t)
				}
				daemonFor(t, "", fmt.Sprintf("[http]\nlisten = %q\nstatus_page = true\n", address))
				dial := func(uid uint32) (c net.Conn) {
					t.Helper()
					var err error
					as(t, uid, func() { c, err = net.Dial(network, address) })
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { c.Close() })
					return c
				}
				monitor := dial(0)
				scrape := func(c net.Conn) error {
					c.SetDeadline(time.Now().Add(5 * time.Second))
					if _, err := io.WriteString(c, scrapeRequest); err != nil {
						return err
					}
					r, err := http.ReadResponse(bufio.NewReader(c), nil)
					if err != nil {
						return err
					}
					defer r.Body.Close()
					_, err = io.Copy(io.Discard, r.Body)
					if err != nil || r.StatusCode != http.StatusOK {
						return fmt.Errorf("status %d, %v", r.StatusCode, err)
					}
					return nil
				}
				if err := scrape(monitor); err != nil {
					t.Fatal(err)
				}
				for range webClients + webClientsOfOne {
					siege(dial(70_000))
				}
				if err := scrape(dial(0)); err != nil {
					t.Errorf("a new connection: %v", err)
				}
				if err := scrape(monitor); err != nil {
					t.Errorf("the monitor's own connection: %v", err)
				}
			})
		}
	}
}

// freeAddress returns a loopback address with an unused port.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestWebBounds: one client has at most webClientsOfOne connections, all clients together at most webClients. The only
// connection of a client stays open when others exceed the limit.
func TestWebBounds(t *testing.T) {
	owners := map[net.Conn]any{}
	v := &connLimiter{ownerOf: func(c net.Conn) any { return owners[c] },
		conns: map[net.Conn]*limitedConn{}}
	open := func(owner any, state http.ConnState) net.Conn {
		c, _ := net.Pipe()
		owners[c] = owner
		v.add(c)
		v.onState(c, state)
		return c
	}
	count := func(owner any) (n int) {
		for _, c := range v.conns {
			if c.owner == owner {
				n++
			}
		}
		return n
	}
	working := open(1, http.StateActive)
	idle := open(1, http.StateIdle)
	for range 100 {
		open(1, http.StateActive)
	}
	if count(1) != webClientsOfOne || v.conns[idle] != nil || v.conns[working] != nil {
		t.Errorf("one client has %d connections", count(1))
	}
	lone := open("lone", http.StateIdle)
	for owner := range 1000 {
		open(owner%10, http.StateActive)
	}
	if len(v.conns) != webClients || v.conns[lone] == nil {
		t.Errorf("%d connections, that of a client with one is there: %v", len(v.conns),
			v.conns[lone] != nil)
	}
	v.onState(lone, http.StateClosed)
	if len(v.conns) != webClients-1 {
		t.Errorf("%d connections", len(v.conns))
	}
}
