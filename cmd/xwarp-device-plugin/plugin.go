package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"xwarp/engine/daemon/control"
)

// resource is the name that containers request, and socketVariable the variable that holds the socket's path.
const (
	resource       = "xwarp.io/socket"
	socketVariable = "XWARP_SOCKET"
)

// plugin serves the kubelet's device-plugin API. A device is a tenant of the daemon: a socket of its own, and limits.
type plugin struct {
	v1beta1.UnimplementedDevicePluginServer
	cfg *config

	mu      sync.Mutex
	tenants tenants       // that the daemon had when it answered
	illness error         // why the devices are unhealthy; nil: they are not
	changed chan struct{} // closed when something of this changes
}

func newPlugin(c *config) *plugin {
	return &plugin{cfg: c, illness: errUnknown, changed: make(chan struct{})}
}

func (p *plugin) serveLoop(ctx context.Context) {
	var w sync.WaitGroup
	w.Go(func() { p.follow(ctx) })
	w.Go(func() { p.attend(ctx) })
	w.Wait()
}

// set stores the daemon's answer, or why there is none.
func (p *plugin) set(now tenants, illness error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if illness != nil {
		now = p.tenants
	}
	if was, is := fmt.Sprint(p.illness), fmt.Sprint(illness); was != is {
		if illness != nil {
			p.cfg.log.Warn("devices are unhealthy", "socket", p.cfg.socket, "error", illness)
		} else {
			p.cfg.log.Info("devices are healthy", "socket", p.cfg.socket, "devices", now.count)
		}
	}
	if now != p.tenants || (illness == nil) != (p.illness == nil) {
		close(p.changed)
		p.changed = make(chan struct{})
	}
	p.tenants, p.illness = now, illness
}

// listDevices returns the devices, and a channel that is closed when they change.
func (p *plugin) listDevices() (*v1beta1.ListAndWatchResponse, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	health := v1beta1.Healthy
	if p.illness != nil {
		health = v1beta1.Unhealthy
	}
	r := &v1beta1.ListAndWatchResponse{}
	for i := range p.tenants.count {
		r.Devices = append(r.Devices, &v1beta1.Device{ID: control.TenantName(i), Health: health})
	}
	return r, p.changed
}

// GetDevicePluginOptions says that nothing is to be done before a container starts.
func (p *plugin) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (
	*v1beta1.DevicePluginOptions, error) {
	return &v1beta1.DevicePluginOptions{}, nil
}

// ListAndWatch tells the devices whenever they change.
func (p *plugin) ListAndWatch(_ *v1beta1.Empty, to v1beta1.DevicePlugin_ListAndWatchServer) error {
	for {
		list, changed := p.listDevices()
		if err := to.Send(list); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-to.Context().Done():
			return nil
		}
	}
}

// Allocate gives a container the directory of its tenant's socket, because a daemon that starts again makes a new
// socket in it. Through a read-only mount a program can connect, but cannot replace the socket.
func (p *plugin) Allocate(_ context.Context, r *v1beta1.AllocateRequest) (*v1beta1.AllocateResponse,
	error) {
	p.mu.Lock()
	have, illness := p.tenants, p.illness
	p.mu.Unlock()
	if illness != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "%s: %v", resource, illness)
	}
	known := make([]string, have.count)
	for i := range known {
		known[i] = control.TenantName(i)
	}
	out := &v1beta1.AllocateResponse{}
	for _, c := range r.ContainerRequests {
		if len(c.DevicesIds) != 1 {
			return nil, status.Errorf(codes.InvalidArgument, "a container has %s: %d, and one is "+
				"all that it can use: it is a socket with limits of its own, for many programs "+
				"(limits.sessions)", resource, len(c.DevicesIds))
		}
		id := c.DevicesIds[0]
		if !slices.Contains(known, id) {
			return nil, status.Errorf(codes.NotFound, "%s: there is no device %q, only %d",
				resource, id, have.count)
		}
		out.ContainerResponses = append(out.ContainerResponses, &v1beta1.ContainerAllocateResponse{
			Envs: map[string]string{socketVariable: control.DefaultPath},
			Mounts: []*v1beta1.Mount{{ContainerPath: filepath.Dir(control.DefaultPath),
				HostPath: filepath.Dir(control.TenantPath(have.directory, id)), ReadOnly: true}},
		})
	}
	return out, nil
}
