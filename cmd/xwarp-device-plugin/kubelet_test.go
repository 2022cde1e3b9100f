package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// long is the timeout of a test.
const long = time.Minute

// kubelet imitates the kubelet: it accepts the registration, connects to the endpoint and watches the devices.
type kubelet struct {
	v1beta1.UnimplementedRegistrationServer
	t     *testing.T
	dir   string
	srv   *grpc.Server
	came  chan *v1beta1.RegisterRequest
	lists chan []*v1beta1.Device
	api   v1beta1.DevicePluginClient
	end   context.CancelFunc
}

// startKubelet starts an imitated kubelet on the directory dir. It removes all sockets of its directory, as the real
// kubelet does.
func startKubelet(t *testing.T, dir string) *kubelet {
	t.Helper()
	old, _ := filepath.Glob(filepath.Join(dir, "*.sock"))
	for _, f := range old {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
	ln, err := net.Listen("unix", filepath.Join(dir, "kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	k := &kubelet{t: t, dir: dir, srv: grpc.NewServer(), came: make(chan *v1beta1.RegisterRequest,
		10), lists: make(chan []*v1beta1.Device, 100)}
	v1beta1.RegisterRegistrationServer(k.srv, k)
	go k.srv.Serve(ln)
	t.Cleanup(k.stop)
	return k
}

func (k *kubelet) stop() {
	if k.end != nil {
		k.end()
	}
	k.srv.Stop()
}

func (k *kubelet) Register(_ context.Context, r *v1beta1.RegisterRequest) (*v1beta1.Empty, error) {
	k.came <- r
	return &v1beta1.Empty{}, nil
}

// plugin waits until the plugin registers, connects to it, and starts to watch its devices.
func (k *kubelet) plugin() {
	k.t.Helper()
	var r *v1beta1.RegisterRequest
	select {
	case r = <-k.came:
	case <-time.After(long):
		k.t.Fatal("no plugin registers")
	}
	if r.Version != "v1beta1" || r.ResourceName != "xwarp.io/socket" ||
		filepath.Base(r.Endpoint) != r.Endpoint {
		k.t.Fatalf("registration: %v", r)
	}
	c, err := grpc.NewClient("unix://"+filepath.Join(k.dir, r.Endpoint),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { c.Close() })
	k.api = v1beta1.NewDevicePluginClient(c)
	ctx, end := context.WithCancel(context.Background())
	k.end = end
	if o, err := k.api.GetDevicePluginOptions(ctx, &v1beta1.Empty{}); err != nil ||
		o.PreStartRequired || o.GetPreferredAllocationAvailable {
		k.t.Fatalf("options: %v, %v", o, err)
	}
	w, err := k.api.ListAndWatch(ctx, &v1beta1.Empty{})
	if err != nil {
		k.t.Fatal(err)
	}
	go func() {
		for {
			l, err := w.Recv()
			if err != nil {
				return
			}
			k.lists <- l.Devices
		}
	}()
}

// until waits until the plugin lists exactly n devices, all of the given health, with different IDs of at most 63
// bytes.
func (k *kubelet) until(n int, health string) {
	k.t.Helper()
	enough := time.After(long)
	var last []*v1beta1.Device
	for {
		select {
		case last = <-k.lists:
			same, ids := 0, map[string]bool{}
			for _, d := range last {
				ids[d.ID] = true
				if d.Health == health && len(d.ID) <= 63 {
					same++
				}
			}
			if len(last) == n && same == n && len(ids) == n {
				return
			}
		case <-enough:
			k.t.Fatalf("the devices are %v, want %d that are %s", last, n, health)
		}
	}
}

// allocate requests devices for containers, each of which has a list of device IDs.
func (k *kubelet) allocate(containers ...[]string) (*v1beta1.AllocateResponse, error) {
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	r := &v1beta1.AllocateRequest{}
	for _, ids := range containers {
		r.ContainerRequests = append(r.ContainerRequests,
			&v1beta1.ContainerAllocateRequest{DevicesIds: ids})
	}
	return k.api.Allocate(ctx, r)
}
