package config

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Address returns the network, "tcp" or "unix", and the address of the HTTP server. An empty network means no server.
func (h *HTTP) Address() (network, address string, err error) {
	const want = `write an address with a port, such as "127.0.0.1:9479", or the absolute path of a Unix socket`
	switch {
	case h.Listen == "":
		return "", "", nil
	case h.Listen[0] == '/' && len(h.Listen) > 100:
		return "", "", errors.New("a socket path may have at most 100 characters")
	case h.Listen[0] == '/':
		return "unix", h.Listen, nil
	}
	a, err := netip.ParseAddrPort(h.Listen)
	if err == nil && a.Port() != 0 {
		return "tcp", a.String(), nil
	}
	if rest, ok := strings.CutPrefix(h.Listen, "localhost:"); ok {
		return "", "", fmt.Errorf(`%s: "127.0.0.1:%s"`, want, rest)
	}
	return "", "", errors.New(want)
}

// Loopback reports whether only programs of this host reach the server. It returns true without a server, and false if
// Listen is invalid.
func (h *HTTP) Loopback() bool {
	network, address, err := h.Address()
	if err != nil || network != "tcp" {
		return err == nil
	}
	return netip.MustParseAddrPort(address).Addr().Unmap().IsLoopback()
}

func (l *Loaded) checkHTTP(f *faults) {
	h := &l.HTTP
	if _, _, err := h.Address(); err != nil {
		f.addf("http.listen = %q: %v", h.Listen, err)
	}
	if h.Listen == l.Daemon.Socket && h.Listen != "" {
		f.addf("http.listen and daemon.socket are both %q: they need a path each", h.Listen)
	}
	if h.StatusPage && h.Listen == "" {
		f.addf(`http.status_page = true needs http.listen, such as "127.0.0.1:9479"`)
	}
	for _, name := range h.Hosts {
		if name == "" || strings.ContainsAny(name, ":/ ") {
			f.addf("http.hosts: %q is no host name (no scheme and no port)", name)
		}
	}
}
