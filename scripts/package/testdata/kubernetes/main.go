// Command kubernetes reads a Kubernetes manifest from its standard input as a cluster's API would: each document by its
// kind, with unknown and repeated keys as errors. It prints the objects as a JSON list. It is a separate module, so
// that its dependencies are not those of xwarp.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// kinds has the API versions and kinds that a manifest may contain, each with a function that makes an empty object.
var kinds = map[metav1.TypeMeta]func() any{
	{APIVersion: "v1", Kind: "Namespace"}:      func() any { return &corev1.Namespace{} },
	{APIVersion: "v1", Kind: "ConfigMap"}:      func() any { return &corev1.ConfigMap{} },
	{APIVersion: "apps/v1", Kind: "DaemonSet"}: func() any { return &appsv1.DaemonSet{} },
	{APIVersion: "v1", Kind: "Pod"}:            func() any { return &corev1.Pod{} },
}

func main() {
	objects, err := read(utilyaml.NewYAMLReader(bufio.NewReader(os.Stdin)))
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(objects)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func read(r *utilyaml.YAMLReader) (objects []any, err error) {
	for {
		text, err := r.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		var t metav1.TypeMeta
		if err == nil {
			err = yaml.Unmarshal(text, &t)
		}
		if err != nil {
			return nil, err
		}
		make := kinds[t]
		if make == nil {
			return nil, fmt.Errorf("no such kind: %+v", t)
		}
		v := make()
		if err := yaml.UnmarshalStrict(text, v); err != nil {
			return nil, fmt.Errorf("%s: %w", t.Kind, err)
		}
		objects = append(objects, v)
	}
}
