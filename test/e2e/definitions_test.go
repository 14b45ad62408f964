package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/config"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

func installDefinitions(t *testing.T) {
	t.Helper()
	objects, err := config.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := apply.NewCluster(testenv.Cluster(t), apply.ClusterOptions{WaitTimeout: 3 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	testenv.Eventually(t, "the definitions are served", func() error {
		_, err := cluster.Apply(context.Background(),
			apply.Request{Owner: apply.Owner{Group: "test.io", Namespace: "x", Name: "x"}, Objects: objects})
		return err
	})
}
