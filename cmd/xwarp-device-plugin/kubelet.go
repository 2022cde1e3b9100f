package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// endpoint is the name of the plugin's socket in the kubelet's directory.
const endpoint = "xwarp.sock"

// kubeletLoop serves the kubelet until ctx is done. After a restart of the kubelet, which removes the sockets of
// plugins, it registers again.
func (p *plugin) kubeletLoop(ctx context.Context) {
	reported := ""
	for ctx.Err() == nil {
		err := p.serveKubelet(ctx, func() { reported = "" })
		if ctx.Err() != nil {
			return
		}
		if text := err.Error(); text != reported {
			p.cfg.log.Warn("kubelet", "error", err)
			reported = text
		}
		sleep(ctx, p.cfg.pace)
	}
}

var errRestarted = errors.New("the kubelet restarted, or removed the socket of the plugin")

// serveKubelet registers with the kubelet, calls registered, and serves the kubelet until it restarts.
func (p *plugin) serveKubelet(ctx context.Context, registered func()) error {
	theirs, ours := filepath.Join(p.cfg.kubelet, filepath.Base(v1beta1.KubeletSocket)),
		filepath.Join(p.cfg.kubelet, endpoint)
	kubelet, err := identify(theirs)
	if err != nil {
		return err
	}
	if err := os.Remove(ours); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	ln, err := net.Listen("unix", ours)
	if err != nil {
		return err
	}
	own, err := identify(ours)
	if err != nil {
		ln.Close()
		return err
	}
	srv := grpc.NewServer()
	v1beta1.RegisterDevicePluginServer(srv, p)
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	defer srv.Stop() // ends the kubelet's ListAndWatch call
	if err := p.announce(ctx, theirs); err != nil {
		return err
	}
	p.cfg.log.Info("registered with the kubelet", "resource", resource, "endpoint", ours)
	registered()
	for {
		select {
		case err := <-ended:
			return err
		default:
		}
		sleep(ctx, p.cfg.pace)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		k, err := identify(theirs)
		if err == nil && k != kubelet {
			return errRestarted
		}
		if o, err := identify(ours); err != nil || o != own {
			return errRestarted
		}
	}
}

func (p *plugin) announce(ctx context.Context, kubelet string) error {
	c, err := grpc.NewClient("unix://"+
		kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, p.cfg.replyTimeout)
	defer cancel()
	_, err = v1beta1.NewRegistrationClient(c).Register(ctx, &v1beta1.RegisterRequest{
		Version: v1beta1.Version, Endpoint: endpoint, ResourceName: resource,
		Options: &v1beta1.DevicePluginOptions{},
	})
	if err != nil {
		return fmt.Errorf("register %s: %w", resource, err)
	}
	return nil
}

// identity distinguishes a socket from a later one with the same name. An inode number alone may be reused.
type identity struct {
	dev, ino uint64
	made     syscall.Timespec
}

func identify(path string) (id identity, err error) {
	var st syscall.Stat_t
	if err := syscall.Lstat(path, &st); err != nil {
		return id, fmt.Errorf("%s: %w", path, err)
	}
	if st.Mode&syscall.S_IFMT != syscall.S_IFSOCK {
		return id, fmt.Errorf("%s is not a socket", path)
	}
	return identity{uint64(st.Dev), st.Ino, st.Ctim}, nil
}
