// Package definitions installs the definitions of all kinds in a cluster. Only tests may import it.
package definitions

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/config"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// Install installs the definitions of all kinds and waits until they are served.
func Install(t *testing.T, cfg *rest.Config) {
	t.Helper()
	cluster, err := apply.NewCluster(cfg, apply.ClusterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	objects, err := config.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "definitions are served", func() error {
		_, err := cluster.Apply(context.Background(),
			apply.Request{Owner: apply.Owner{Group: "test.io", Namespace: "x", Name: "crds"}, Objects: objects})
		return err
	})
	testenv.Eventually(t, "definitions are discovered", func() error { return discovered(cfg, objects) })
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
