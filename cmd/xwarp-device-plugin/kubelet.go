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

// endpoint is the name of our socket in the kubelet's directory, beside the kubelet's own.
const endpoint = "xwarp.sock"

// attend serves one kubelet after the other until ctx is done: one that starts again knows no plugin, and has
// removed their sockets.
func (p *plugin) attend(ctx context.Context) {
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

var errRestarted = errors.New("the kubelet started again, or removed our socket")

// serveKubelet registers with the kubelet and serves it until it starts again; registered is called in between.
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
	defer srv.Stop() // the kubelet's watch has no end of its own
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
		return fmt.Errorf("registering %s: %w", resource, err)
	}
	return nil
}

// identity tells a socket from one that was made later under the same name: an inode's number may be used again.
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
		return id, fmt.Errorf("%s is no socket", path)
	}
	return identity{uint64(st.Dev), st.Ino, st.Ctim}, nil
}
