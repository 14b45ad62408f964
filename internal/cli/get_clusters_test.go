package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

const (
	oldRevision = "main@sha1:4f17a0b1c2d3e4f5061728394a5b6c7d8e9f0a1b"
	newRevision = "main@sha1:b3c0de1f4f17a0b1c2d3e4f5061728394a5b6c7d"
)

// deployment returns a Kustomization that deploys to a cluster; to that of the controllers without a name.
func deployment(namespace, name, to string) *kustomizev1.Kustomization {
	k := &kustomizev1.Kustomization{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"env": "prod"}},
		Spec: kustomizev1.KustomizationSpec{Interval: meta.DurationOf(time.Hour), Prune: true,
			SourceRef: kustomizev1.SourceReference{Kind: "GitRepository",
				NamespacedName: meta.NamespacedName{Name: "fleet"}}},
	}
	if to != "" {
		k.Spec.KubeConfig = &meta.KubeConfigReference{SecretRef: &meta.SecretKeyReference{Name: to}}
	}
	k.Status.LastAppliedRevision = newRevision
	reconcile.Mark(k, reconcile.TypeReady, metav1.ConditionTrue, "ReconciliationSucceeded",
		"Applied revision: "+newRevision)
	return k
}

// fails makes an object one that has failed at an older revision.
func fails(k *kustomizev1.Kustomization, message string) *kustomizev1.Kustomization {
	k.Status.LastAppliedRevision = oldRevision
	reconcile.Mark(k, reconcile.TypeReady, metav1.ConditionFalse, "ReconciliationFailed", message)
	return k
}

// TestProblemOfAWaitingObject has an object that is Ready, and whose change waits at a gate.
func TestProblemOfAWaitingObject(t *testing.T) {
	k := deployment("apps", "web", "")
	k.Status.Held = meta.Held{Pending: &meta.Pending{Revision: "v2", Created: 2},
		HeldBy: []meta.HoldingGate{{Gate: "apps/release", Code: "Closed"}}}
	found := foundObject{kind: kind.ByName(kustomizev1.KustomizationKind), object: k}
	want := "kustomization/apps/web: waiting at gate 'release' for v2 (2 changes)"
	if got := problemOf(found, reconcile.StateWaiting); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestGetClusters(t *testing.T) {
	c, namespace := withDefinitions(t)
	suspended := deployment(namespace, "pause", "edge-3")
	suspended.Spec.Suspend = true
	suspended.Labels = nil
	release := &helmv2.HelmRelease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec: helmv2.HelmReleaseSpec{Interval: meta.DurationOf(time.Hour),
			ChartRef:   &helmv2.ChartReference{Kind: "HelmChart", Name: "web"},
			KubeConfig: &meta.KubeConfigReference{ConfigMapRef: &meta.LocalObjectReference{Name: "edge-1"}}}}
	for _, o := range []reconcile.Object{
		deployment(namespace, "home", ""), deployment(namespace, "edge-1", "edge-1"),
		fails(deployment(namespace, "edge-2", "edge-2"), "cannot reach the cluster\nat \x1b[31mits address"),
		deployment(namespace, "edge-2b", "edge-2"), suspended, release,
	} {
		status := *o.CommonStatus()
		k, isKustomization := o.(*kustomizev1.Kustomization)
		var full kustomizev1.KustomizationStatus
		if isKustomization {
			full = k.Status
		}
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		*o.CommonStatus() = status
		if isKustomization {
			k.Status = full
		}
		if err := c.Status().Update(t.Context(), o.(client.Object)); err != nil {
			t.Fatal(err)
		}
	}
	r := at(t, "get", "all", "--clusters", "-n", namespace).wants(t, exitOK)
	golden(t, "get-clusters.txt", strings.ReplaceAll(r.out, namespace, "NAMESPACE"))
	r = at(t, "get", "all", "--clusters", "--by", "env", "-n", namespace).wants(t, exitOK)
	golden(t, "get-clusters-by.txt", strings.ReplaceAll(r.out, namespace, "NAMESPACE"))
	r = at(t, "get", "all", "--clusters", "-n", namespace, "-o", "json", "--status-selector", "ready=false").
		wants(t, exitOK)
	var list struct{ Clusters []clusterSummary }
	if err := json.Unmarshal([]byte(r.out), &list); err != nil || len(list.Clusters) != 1 ||
		list.Clusters[0].Name != namespace+"/edge-2" || list.Clusters[0].States[reconcile.StateFailed] != 1 {
		t.Errorf("%v: %s", err, r.out)
	}
	at(t, "get", "all", "--by", "env", "-n", namespace).wants(t, exitUsage, "--by needs --clusters")
	at(t, "get", "all", "--clusters", "--watch", "-n", namespace).wants(t, exitUsage, "cannot be watched")
	at(t, "get", "all", "--clusters", "-n", namespace, "-l", "no=such").wants(t, exitOK, "use -A for all namespaces")
}

// A fleet of 200 clusters with 10 objects each: each cluster is one row, the worst ones first.
func TestClustersOfAFleet(t *testing.T) {
	var found []foundObject
	for n := range 2000 {
		k := deployment("fleet", fmt.Sprintf("app-%d", n), fmt.Sprintf("cluster-%d", n%200))
		if n == 1777 {
			fails(k, "broken")
		}
		found = append(found, foundObject{kind.ByName(kustomizev1.KustomizationKind), k})
	}
	all := summarize(found, "")
	if len(all) != 200 || all[0].Name != "fleet/cluster-177" || all[0].Objects != 10 || len(all[0].Revisions) != 2 ||
		all[0].Problem != "kustomization/fleet/app-1777: broken" || all[1].Problem != "" {
		t.Errorf("%d clusters, first %+v", len(all), all[0])
	}
	if by := summarize(found, "env"); len(by) != 1 || by[0].Clusters != 200 || by[0].Objects != 2000 {
		t.Errorf("%+v", by)
	}
}
