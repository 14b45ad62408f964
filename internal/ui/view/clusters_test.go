package view

import (
	"fmt"
	"testing"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/network/hostguard"
)

func TestClustersAreRolledUp(t *testing.T) {
	in := func(i *Item, cluster, revision string) *Item {
		i.Cluster, i.Revision = cluster, revision
		return i
	}
	dead := in(app("dead", Failed), "team/west", "v1")
	dead.Message = "host 'west:6443' does not answer. " + hostguard.ClusterHint
	items := []*Item{git("repo", Failed), in(app("a", Ready), "", "v1"), in(app("b", Waiting), "team/east", "v1"),
		in(app("c", Failed), "team/east", "v2"), in(app("d", Ready), "team/east", "v1"), dead}
	got := ""
	for _, c := range Clusters(items) {
		got += fmt.Sprintf("%s: %d objects, %v, %v", c.Name, c.Objects, c.Counts, c.Revisions)
		if c.Problem != nil {
			got += ", " + c.Problem.Name
		}
		if c.Unreachable != nil {
			got += ", unreachable"
		}
		got += "\n"
	}
	want := "team/west: 1 objects, map[failed:1], [v1], dead, unreachable\n" +
		"team/east: 3 objects, map[failed:1 ready:1 waiting:1], [v1 v2], c\n" +
		"this cluster: 1 objects, map[ready:1], [v1]\n"
	if got != want {
		t.Errorf("the clusters are\n%swant\n%s", got, want)
	}
}

func TestAnItemKnowsItsCluster(t *testing.T) {
	o := &kustomizev1.Kustomization{}
	o.Namespace, o.Name = "team", "app"
	if i := Of(kind.ByName("Kustomization"), o); i.Cluster != "" || i.Target() != "this cluster" {
		t.Errorf("the cluster is %q", i.Cluster)
	}
	o.Spec.KubeConfig = &meta.KubeConfigReference{SecretRef: &meta.SecretKeyReference{Name: "east"}}
	if i := Of(kind.ByName("Kustomization"), o); i.Cluster != "team/east" {
		t.Errorf("the cluster is %q", i.Cluster)
	}
}
