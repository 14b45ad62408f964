package kubeclient_test

import (
	"testing"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// TestConsumerOnAnotherShard has two processes, each with a label selector. The source is on one shard, and a
// Kustomization that uses it on the other. What is on neither shard is left alone.
func TestConsumerOnAnotherShard(t *testing.T) {
	t.Parallel()
	const key = "sharding.fluxcd.io/key"
	first := system.Prepare(t, func(o *options.Options) { o.WatchLabelSelector = key + "=first" })
	second := first.For(t)
	second.Storage, second.Requests = t.TempDir(), &system.Requests{}
	second.Configure = []func(*options.Options){func(o *options.Options) { o.WatchLabelSelector = key + "=second" }}
	commit := first.Git.Commit("app", map[string]string{
		"cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm}\ndata: {k: v}\n"})
	shard := func(name string) map[string]string { return map[string]string{key: name} }
	first.GitRepository("app", func(g *sourcev1.GitRepository) { g.Labels = shard("first") })
	first.Kustomization("app", "app", "", func(k *kustomizev1.Kustomization) { k.Labels = shard("second") })
	first.Kustomization("other", "app", "")
	first.Start()
	second.Start()
	first.Ready("app", commit)
	const patch = "PATCH /apis/"
	if n := len(first.Requests.Matching(patch + kustomizev1.GroupVersion.Group)); n > 0 {
		t.Errorf("the shard of the source patched Kustomizations %d times", n)
	}
	if n := len(second.Requests.Matching(patch + sourcev1.GroupVersion.Group)); n > 0 {
		t.Errorf("the shard of the Kustomization patched sources %d times", n)
	}

	commit = first.Git.Commit("app", map[string]string{
		"cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm}\ndata: {k: w}\n"})
	first.RequestFetch("app")
	first.Ready("app", commit) // its interval is an hour
	k := &kustomizev1.Kustomization{}
	if err := first.Get(k, "other"); err != nil || len(k.Status.Conditions) > 0 || len(k.Finalizers) > 0 {
		t.Errorf("a Kustomization without a shard was reconciled: %+v (%v)", k.Status, err)
	}
}
