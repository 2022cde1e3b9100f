package install

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"xwarp/engine/daemon/client"
	"xwarp/engine/daemon/config"
)

// manifest has the fields of a Kubernetes object that these tests check. Before, the manifest is read completely with
// Kubernetes' own types.
type manifest struct {
	Kind     string
	Metadata struct {
		Name, Namespace string
		Labels          map[string]string
	}
	Data map[string]string
	Spec struct {
		Selector struct{ MatchLabels map[string]string }
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     pod
		}
		pod // the fields of a Pod, which has no template
	}
}

type pod struct {
	HostNetwork       bool
	ServiceLinks      *bool `json:"enableServiceLinks"`
	HostUsers         *bool
	PriorityClassName string
	Tolerations       []struct{ Operator string }
	Containers        []struct {
		Name            string
		Image           string
		ImagePullPolicy string
		Command         []string
		ReadinessProbe  *probe
		LivenessProbe   *probe
		SecurityContext struct {
			AllowPrivilegeEscalation *bool
			Privileged               bool
			Capabilities             struct{ Add, Drop []string }
			SeccompProfile           struct{ Type string }
		}
		VolumeMounts []struct {
			Name, MountPath string
			ReadOnly        bool
		}
		Resources struct{ Requests, Limits map[string]string }
	}
	Volumes []struct {
		Name      string
		ConfigMap struct{ Name string }
		HostPath  struct{ Path string }
	}
}

type probe struct{ Exec struct{ Command []string } }

// written returns a manifest as manifests.sh writes it for version 1.2.3.
func written(t *testing.T, name string) []byte {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("./manifests.sh", "1.2.3", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// checkContainers checks that each container uses the image that image.sh makes, and requests memory and processor
// time.
func checkContainers(t *testing.T, p *pod) {
	t.Helper()
	script, err := os.ReadFile("image.sh")
	if err != nil || !bytes.Contains(script, []byte(`-t "xwarp:$VERSION"`)) {
		t.Fatalf("image.sh gives the image another name: %v", err)
	}
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.Image != "xwarp:1.2.3" || c.ImagePullPolicy != "IfNotPresent" ||
			c.Resources.Requests["memory"] == "" || c.Resources.Requests["cpu"] == "" {
			t.Errorf("container %s: image %s, pulled %s, requests %v", c.Name, c.Image,
				c.ImagePullPolicy, c.Resources.Requests)
		}
	}
}

// manifests reads the objects of a manifest. The program in testdata/kubernetes reads it first with Kubernetes' types,
// and refuses unknown fields. The test is skipped if that program's modules cannot be downloaded.
func manifests(t *testing.T, text []byte) (list []manifest, err error) {
	t.Helper()
	const dir = "testdata/kubernetes"
	load := exec.Command("go", "mod", "download")
	load.Dir = dir
	if out, err := load.CombinedOutput(); err != nil {
		t.Skipf("cannot download Kubernetes' types: %v\n%s", err, out)
	}
	read := exec.Command("go", "run", "-mod=readonly", ".")
	read.Dir, read.Stdin = dir, bytes.NewReader(text)
	var stderr strings.Builder
	read.Stderr = &stderr
	out, err := read.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, stderr.String())
	}
	return list, json.Unmarshal(out, &list)
}

// TestDaemonSet reads the example of a DaemonSet with Kubernetes' types, and the xwarpd configuration in it with
// package config. It checks that the parts fit together, and that the pod has the capabilities of the systemd unit.
func TestDaemonSet(t *testing.T) {
	text := written(t, "daemonset.yaml")
	list, err := manifests(t, text)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 3 || list[0].Kind != "Namespace" || list[1].Kind != "ConfigMap" ||
		list[2].Kind != "DaemonSet" {
		t.Fatalf("objects: %+v", list)
	}
	space := list[0].Metadata
	if space.Labels["pod-security.kubernetes.io/enforce"] != "privileged" ||
		list[1].Metadata.Namespace != space.Name || list[2].Metadata.Namespace != space.Name {
		t.Errorf("namespace %+v", space)
	}
	list = list[1:]
	file := filepath.Join(t.TempDir(), "xwarp.toml")
	if err := os.WriteFile(file, []byte(list[0].Data["xwarp.toml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(config.Source{Path: file})
	if err != nil || len(cfg.Interface) != 1 || cfg.Tenants.Count == 0 {
		t.Fatalf("its configuration: %v", err)
	}
	spec := &list[1].Spec
	pod := &spec.Template.Spec
	for k, v := range spec.Selector.MatchLabels {
		if spec.Template.Metadata.Labels[k] != v {
			t.Errorf("the selector's label %s=%s is not the pod's", k, v)
		}
	}
	if !pod.HostNetwork || len(pod.Containers) != 2 {
		t.Fatalf("pod: %+v", pod)
	}
	checkContainers(t, pod)
	if c := &pod.Containers[0]; c.ReadinessProbe == nil || c.LivenessProbe == nil ||
		pod.PriorityClassName == "" || len(pod.Tolerations) == 0 {
		t.Errorf("no probes, no priority or no tolerations: %+v", pod)
	}
	if pod.ServiceLinks == nil || *pod.ServiceLinks {
		t.Error("Kubernetes sets XWARP_DAEMON_PORT for a Service named xwarp-daemon; xwarpd rejects it")
	}
	devicePlugin(t, pod)
	want := map[string]string{filepath.Dir(config.DefaultPath): "config " + list[0].Metadata.Name,
		cfg.Tenants.Directory: "host " + cfg.Tenants.Directory}
	for _, m := range pod.Containers[0].VolumeMounts {
		for _, v := range pod.Volumes {
			if v.Name == m.Name && (want[m.MountPath] == "config "+v.ConfigMap.Name ||
				want[m.MountPath] == "host "+v.HostPath.Path) {
				delete(want, m.MountPath)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("not mounted: %v", want)
	}
	u, err := readUnit("xwarpd.service")
	if err != nil {
		t.Fatal(err)
	}
	for c := range strings.FieldsSeq(u.one("CapabilityBoundingSet")) {
		if !slices.Contains(pod.Containers[0].SecurityContext.Capabilities.Add,
			strings.TrimPrefix(c, "CAP_")) {
			t.Errorf("the pod lacks the unit's %s", c)
		}
	}
	wrong := bytes.Replace(text, []byte("hostNetwork"), []byte("hostNetwrok"), 1)
	if _, err := manifests(t, wrong); err == nil ||
		!strings.Contains(err.Error(), `unknown field "hostNetwrok"`) {
		t.Errorf("with a misspelt field: %v", err)
	}
}

// devicePlugin checks the container of the device plugin. It must have no privileges. It must mount only the directory
// of the daemon's socket, from a volume that other pods cannot reach, and the kubelet's directory for plugins.
func devicePlugin(t *testing.T, p *pod) {
	t.Helper()
	c := &p.Containers[1]
	if len(c.Command) != 1 || filepath.Base(c.Command[0]) != "xwarp-device-plugin" {
		t.Errorf("the plugin's command: %q", c.Command)
	}
	if s := &c.SecurityContext; s.Privileged || len(s.Capabilities.Add) != 0 ||
		!slices.Equal(s.Capabilities.Drop, []string{"ALL"}) || s.AllowPrivilegeEscalation == nil ||
		*s.AllowPrivilegeEscalation || s.SeccompProfile.Type != "RuntimeDefault" {
		t.Errorf("the plugin has privileges: %+v", c.SecurityContext)
	}
	// The mounts, and whether each is read-only.
	want := map[string]bool{filepath.Dir(client.DefaultPath): true,
		"/var/lib/kubelet/device-plugins": false}
	for _, m := range c.VolumeMounts {
		readOnly, ok := want[m.MountPath]
		if !ok || readOnly != m.ReadOnly {
			t.Errorf("the plugin has %+v", m)
		}
		for _, v := range p.Volumes {
			path := m.MountPath
			if readOnly {
				path = "" // the pod's own volume, not a path of the host
			}
			if v.Name == m.Name && v.HostPath.Path != path {
				t.Errorf("%s is %q on the host", m.MountPath, v.HostPath.Path)
			}
		}
		delete(want, m.MountPath)
	}
	if len(want) > 0 {
		t.Errorf("the plugin lacks %v", want)
	}
}

// TestPod checks that the example of a pod requests only resources of the device plugin and has no further privileges.
func TestPod(t *testing.T) {
	list, err := manifests(t, written(t, "pod.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 1 || list[0].Kind != "Pod" || len(list[0].Spec.Containers) != 1 {
		t.Fatalf("objects: %+v", list)
	}
	p := &list[0].Spec.pod
	c := &p.Containers[0]
	checkContainers(t, p)
	if p.HostUsers == nil || *p.HostUsers || p.HostNetwork ||
		len(p.Volumes)+len(c.VolumeMounts)+len(c.SecurityContext.Capabilities.Add) != 0 ||
		c.SecurityContext.Privileged || c.SecurityContext.SeccompProfile.Type != "RuntimeDefault" {
		t.Errorf("the pod has more than it needs: %+v", p)
	}
	source, err := os.ReadFile("../../cmd/xwarp-device-plugin/plugin.go")
	if err != nil {
		t.Fatal(err)
	}
	for name, n := range c.Resources.Limits {
		if n != "1" || !bytes.Contains(source, fmt.Appendf(nil, "resource       = %q", name)) {
			t.Errorf("%s %s of the plugin's resources", n, name)
		}
	}
	if !slices.ContainsFunc(c.Command, func(s string) bool {
		return s == "$(XWARP_SOCKET)"
	}) || !bytes.Contains(source, []byte(`"XWARP_SOCKET"`)) {
		t.Errorf("command %q", c.Command)
	}
}
