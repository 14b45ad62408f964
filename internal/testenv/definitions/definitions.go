// Package definitions installs the definitions of all kinds in a cluster. Only tests may import it.
package definitions

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/config"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// marker is a ConfigMap that says which definitions a cluster has.
const marker = "test-definitions"

// Install installs the definitions of all kinds and waits until they are served. It does not compare them again if they
// are as an earlier call left them: that takes the API server a second, and each package would do it.
func Install(tb testing.TB, cfg *rest.Config) {
	tb.Helper()
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	installed := clients.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	mark := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: marker},
		Data: map[string]string{"state": state(tb, cfg)}}
	found, err := installed.Get(tb.Context(), marker, metav1.GetOptions{})
	if err == nil && found.Data["state"] == mark.Data["state"] {
		return
	}
	cluster, err := apply.NewCluster(cfg, apply.ClusterOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	defer cluster.Close()
	objects, err := config.Definitions()
	if err != nil {
		tb.Fatal(err)
	}
	testenv.Eventually(tb, "definitions are served", func() error {
		_, err := cluster.Apply(context.Background(),
			apply.Request{Owner: apply.Owner{Group: "test.io", Namespace: "x", Name: "crds"}, Objects: objects})
		return err
	})
	testenv.Eventually(tb, "definitions are discovered", func() error { return discovered(cfg, objects) })
	mark.Data["state"] = state(tb, cfg)
	testenv.Eventually(tb, "the definitions are noted", func() error {
		_, err := installed.Update(tb.Context(), mark, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			_, err = installed.Create(tb.Context(), mark, metav1.CreateOptions{})
		}
		return err
	})
}

// state changes when the definitions of the cluster or those of this checkout do.
func state(tb testing.TB, cfg *rest.Config) string {
	tb.Helper()
	hash := sha256.New()
	err := fs.WalkDir(config.Files, "crd", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := config.Files.ReadFile(name)
		hash.Write(content)
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	objects, err := metadata.NewForConfig(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	served, err := objects.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}).List(tb.Context(), metav1.ListOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	for _, d := range served.Items { // in the order of their names
		if strings.Contains(d.Name, ".fluxcd.") {
			fmt.Fprintln(hash, d.Name, d.UID, d.Generation, d.DeletionTimestamp)
		}
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// discovered returns an error unless a new client finds the kinds of all definitions.
func discovered(cfg *rest.Config, definitions []*unstructured.Unstructured) error {
	c, err := client.New(cfg, client.Options{Scheme: kubeclient.Scheme()})
	if err != nil {
		return err
	}
	for _, d := range definitions {
		group, _, _ := unstructured.NestedString(d.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(d.Object, "spec", "names", "kind")
		if _, err := c.RESTMapper().RESTMapping(schema.GroupKind{Group: group, Kind: kind}); err != nil {
			return err
		}
	}
	return nil
}
