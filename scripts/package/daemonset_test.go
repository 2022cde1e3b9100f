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

	"xwarp/engine/client"
	"xwarp/engine/daemon/config"
)

// manifest is what these tests look at in the example for Kubernetes, after Kubernetes' own types have taken all of it.
type manifest struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string
	Spec     struct {
		Selector struct{ MatchLabels map[string]string }
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct {
				HostNetwork bool
				Containers  []struct {
					SecurityContext struct{ Capabilities struct{ Add []string } }
					VolumeMounts    []struct{ Name, MountPath string }
				}
				Volumes []struct {
					Name      string
					ConfigMap struct{ Name string }
					HostPath  struct{ Path string }
				}
			}
		}
	}
}

// manifests has the module of Kubernetes' types read a file strictly.
func manifests(t *testing.T, text []byte) (list []manifest, err error) {
	t.Helper()
	const dir = "testdata/kubernetes"
	load := exec.Command("go", "mod", "download")
	load.Dir = dir
	if out, err := load.CombinedOutput(); err != nil {
		t.Skipf("Kubernetes' types cannot be had here: %v\n%s", err, out)
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

// TestDaemonSet reads the example with Kubernetes' types, the configuration in it with ours, and holds what must fit together against
// each other.
func TestDaemonSet(t *testing.T) {
	text, err := os.ReadFile("daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	list, err := manifests(t, text)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 2 || list[0].Kind != "ConfigMap" || list[1].Kind != "DaemonSet" {
		t.Fatalf("objects: %+v", list)
	}
	file := filepath.Join(t.TempDir(), "xwarp.toml")
	if err := os.WriteFile(file, []byte(list[0].Data["xwarp.toml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	if cfg, err := config.Load(config.Source{Path: file}); err != nil || len(cfg.Interface) != 1 {
		t.Errorf("its configuration: %v", err)
	}
	spec := &list[1].Spec
	pod := &spec.Template.Spec
	for k, v := range spec.Selector.MatchLabels {
		if spec.Template.Metadata.Labels[k] != v {
			t.Errorf("the selector's label %s=%s is not the pod's", k, v)
		}
	}
	if !pod.HostNetwork || len(pod.Containers) != 1 {
		t.Fatalf("pod: %+v", pod)
	}
	want := map[string]string{filepath.Dir(config.DefaultPath): "config " + list[0].Metadata.Name, filepath.Dir(client.DefaultPath): "host " + filepath.Dir(client.DefaultPath)}
	for _, m := range pod.Containers[0].VolumeMounts {
		for _, v := range pod.Volumes {
			if v.Name == m.Name && (want[m.MountPath] == "config "+v.ConfigMap.Name || want[m.MountPath] == "host "+v.HostPath.Path) {
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
		if !slices.Contains(pod.Containers[0].SecurityContext.Capabilities.Add, strings.TrimPrefix(c, "CAP_")) {
			t.Errorf("the pod lacks the unit's %s", c)
		}
	}
	wrong := bytes.Replace(text, []byte("hostNetwork"), []byte("hostNetwrok"), 1)
	if _, err := manifests(t, wrong); err == nil || !strings.Contains(err.Error(), `unknown field "hostNetwrok"`) {
		t.Errorf("with a misspelt field: %v", err)
	}
}
