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
	"xwarp/engine/plain"
)

// resource is the name of the resource that containers request. socketVariable is the environment variable in which a
// container gets the path of its control socket.
const (
	resource       = "xwarp.io/socket"
	socketVariable = "XWARP_SOCKET"
)

// plugin implements the device plugin API. A device is a tenant of the daemon, with its own socket and limits.
type plugin struct {
	v1beta1.UnimplementedDevicePluginServer
	cfg *config

	mu              sync.Mutex
	tenants         tenants       // last reply of the daemon
	unhealthyReason error         // why the devices are unhealthy; nil: healthy
	changed         chan struct{} // closed when the devices or their health change
}

func newPlugin(c *config) *plugin {
	return &plugin{cfg: c, unhealthyReason: errUnknown, changed: make(chan struct{})}
}

func (p *plugin) serveLoop(ctx context.Context) {
	var w sync.WaitGroup
	w.Go(func() { p.daemonLoop(ctx) })
	w.Go(func() { p.kubeletLoop(ctx) })
	w.Wait()
}

// set stores the reply of the daemon, or the reason why there is none. In that case the devices of the last reply stay
// listed, as unhealthy.
func (p *plugin) set(now tenants, reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if reason != nil {
		now = p.tenants
	}
	if was, is := fmt.Sprint(p.unhealthyReason), fmt.Sprint(reason); was != is {
		if reason != nil {
			p.cfg.log.Warn("devices are unhealthy", "socket", p.cfg.daemonSocket, "error", reason)
		} else {
			p.cfg.log.Info("devices are healthy", "socket", p.cfg.daemonSocket, "devices",
				now.count)
		}
	}
	if now != p.tenants || (reason == nil) != (p.unhealthyReason == nil) {
		close(p.changed)
		p.changed = make(chan struct{})
	}
	p.tenants, p.unhealthyReason = now, reason
}

// listDevices returns the devices and a channel that is closed when they change.
func (p *plugin) listDevices() (*v1beta1.ListAndWatchResponse, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	health := v1beta1.Healthy
	if p.unhealthyReason != nil {
		health = v1beta1.Unhealthy
	}
	r := &v1beta1.ListAndWatchResponse{}
	for i := range p.tenants.count {
		r.Devices = append(r.Devices, &v1beta1.Device{ID: control.TenantName(i), Health: health})
	}
	return r, p.changed
}

// GetDevicePluginOptions returns no options: nothing needs to be done before a container starts.
func (p *plugin) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (
	*v1beta1.DevicePluginOptions, error) {
	return &v1beta1.DevicePluginOptions{}, nil
}

// ListAndWatch sends the devices, and sends them again when they change.
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

// Allocate returns, for each container, a mount of the directory of its tenant's socket. The directory is mounted
// instead of the socket, because a restarted daemon creates a new socket in it. The mount is read-only: a program can
// connect to the socket, but not replace it.
func (p *plugin) Allocate(_ context.Context, r *v1beta1.AllocateRequest) (*v1beta1.AllocateResponse,
	error) {
	p.mu.Lock()
	have, reason := p.tenants, p.unhealthyReason
	p.mu.Unlock()
	if reason != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "%s: %v", resource, reason)
	}
	known := make([]string, have.count)
	for i := range known {
		known[i] = control.TenantName(i)
	}
	out := &v1beta1.AllocateResponse{}
	for _, c := range r.ContainerRequests {
		if len(c.DevicesIds) != 1 {
			return nil, status.Errorf(codes.InvalidArgument, "a container requests %s: %d, but "+
				"only one is supported: one socket serves many programs (limits.sessions)",
				resource, len(c.DevicesIds))
		}
		id := c.DevicesIds[0]
		if !slices.Contains(known, id) {
			return nil, status.Errorf(codes.NotFound, "%s: no device %q, only %s",
				resource, id, plain.Count(have.count, "device"))
		}
		out.ContainerResponses = append(out.ContainerResponses, &v1beta1.ContainerAllocateResponse{
			Envs: map[string]string{socketVariable: control.DefaultPath},
			Mounts: []*v1beta1.Mount{{ContainerPath: filepath.Dir(control.DefaultPath),
				HostPath: filepath.Dir(control.TenantPath(have.directory, id)), ReadOnly: true}},
		})
	}
	return out, nil
}
