package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"xwarp/engine/daemon/config"
	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/web"
)

// Limits of the HTTP server, so that a slow client, or one with many connections, delays only itself.
const (
	// webClients is the maximum number of connections, webClientsOfOne that of one client. A new connection replaces
	// another at a limit, see connLimiter.
	webClients      = 64
	webClientsOfOne = 16
	// Timeouts of the request, of the answer, and between requests.
	webHeaderTimeout = 5 * time.Second
	webWriteTimeout  = 10 * time.Second
	webIdleTimeout   = 5 * time.Second
	webHeaderBytes   = 16 << 10
)

// webServer is the HTTP server of metrics and of the status page.
type webServer struct {
	http  *http.Server
	pages *web.Pages
	done  chan struct{}
}

// startWeb opens the HTTP server, if one is configured.
func (d *Daemon) startWeb(cfg *config.Loaded) error {
	network, address, err := cfg.HTTP.Address()
	if err != nil || network == "" {
		return err
	}
	ln, err := listenWeb(network, address, cfg)
	if err != nil {
		return err
	}
	if !cfg.HTTP.Loopback() {
		d.log.Warn("metrics are exposed to the network without authentication or encryption",
			"listen", address, "next", `set http.listen = "127.0.0.1:9479" behind a proxy, or firewall the port`)
	}
	s := &webServer{pages: web.New(web.Config{Snapshot: d.Snapshot, Hosts: cfg.HTTP.Hosts,
		StatusPage: cfg.HTTP.StatusPage}), done: make(chan struct{})}
	conns := &connLimiter{Listener: ln, ownerOf: d.webOwner, conns: map[net.Conn]*limitedConn{}}
	s.http = &http.Server{
		ConnState: conns.onState,
		Handler:   s.pages, ReadHeaderTimeout: webHeaderTimeout, ReadTimeout: webHeaderTimeout,
		WriteTimeout: webWriteTimeout,
		IdleTimeout:  webIdleTimeout, MaxHeaderBytes: webHeaderBytes,
		ErrorLog: slog.NewLogLogger(d.log.Handler(), slog.LevelDebug),
	}
	d.mu.Lock()
	d.web = s
	stopping := d.stopping
	d.mu.Unlock()
	if stopping {
		s.pages.Close()
		return ln.Close()
	}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(conns); !errors.Is(err,
			http.ErrServerClosed) {
			d.log.Error("metrics server failed", "error", err)
		}
	}()
	d.log.Info("serving metrics", "listen", address, "status_page", cfg.HTTP.StatusPage)
	return nil
}

// retryWeb retries opening the HTTP server until it succeeds or ctx is done.
func (d *Daemon) retryWeb(ctx context.Context) {
	for pause := reopenPause; ctx.Err() == nil; pause = min(2*pause, reopenPauseMax) {
		sleepFor(ctx, pause)
		if d.startWeb(d.cfg.Load()) == nil {
			return
		}
	}
}

func listenWeb(network, address string, cfg *config.Loaded) (net.Listener, error) {
	if network == "unix" {
		ln, err := listenUnix(address, programsAccess(&cfg.Daemon))
		if errors.Is(err, errServed) {
			return nil, fmt.Errorf("http.listen: another process serves %s: use another "+
				"path", address)
		}
		if err != nil {
			return nil, fmt.Errorf("http.listen: %s: %w", address, err)
		}
		control.PassRights(ln, false) // closing descriptors that clients sent could block
		return ln, nil
	}
	ln, err := net.Listen(network, address)
	if err != nil {
		return nil, fmt.Errorf("http.listen: %w (find the owner with ss -ltnp, or use another "+
			"port)", err)
	}
	return ln, nil
}

// stop closes the server. Until ctx is done, it waits for answers that are being sent.
func (s *webServer) stop(ctx context.Context) {
	if s == nil {
		return
	}
	if s.http.Shutdown(ctx) != nil {
		s.http.Close()
	}
	<-s.done
	s.pages.Close()
}
