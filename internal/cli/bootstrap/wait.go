package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
)

// readInterval is how often an object is read while waiting for it.
const readInterval = 500 * time.Millisecond

// reconciled is an object with the status of all kinds.
type reconciled interface {
	client.Object
	CommonStatus() *meta.Status
}

// wait waits until the cluster has fetched the commit and applied it to itself. While the cluster moves to another
// repository, it may apply the previous one once more, which declares the previous URL: then the sync is applied again.
func (r *run) wait(ctx context.Context) error {
	meta := metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Namespace}
	source, k := r.newSource(), &kustomizev1.Kustomization{ObjectMeta: meta}
	source.SetNamespace(r.Namespace)
	source.SetName(r.Namespace)
	for {
		if err := r.await(ctx, r.sourceKind(), source, func() bool {
			return source.GetArtifact() != nil
		}); err != nil {
			return err
		}
		r.Output.Done("%s '%s' fetched %s", r.sourceKind(), keyOf(source),
			shortRevision(source.GetArtifact().Revision))
		if err := r.await(ctx, "Kustomization", k, func() bool {
			return k.Status.LastAppliedRevision != ""
		}); err != nil {
			return err
		}
		if err := r.Client.Get(ctx, keyOf(source), source); err != nil {
			return clusterFault(fmt.Sprintf("cannot get %s '%s'", r.sourceKind(), keyOf(source)), err)
		}
		if r.declares(source) {
			break
		}
		if err := r.applySync(ctx); err != nil {
			return err
		}
	}
	if !managesItself(k) {
		return failed("Kustomization '%s' applied %s, which does not declare the Kustomization itself", keyOf(k),
			shortRevision(k.Status.LastAppliedRevision)).
			WithHint("Make sure that path '%s' includes directory '%s'", r.specPath(), r.Namespace).Final()
	}
	r.Output.Done("Kustomization '%s' applied %s: the cluster manages itself from now on", keyOf(k),
		shortRevision(k.Status.LastAppliedRevision))
	return nil
}

// declares reports whether the manifests declare the source with the URL that it has.
func (r *run) declares(source source) bool {
	for _, o := range r.objects {
		if r.isSync(o) && o.GetKind() == r.sourceKind() {
			url, _, _ := unstructured.NestedString(o.Object, "spec", "url")
			return url == urlOf(source)
		}
	}
	return false
}

// managesItself reports whether the inventory of a Kustomization contains the Kustomization.
func managesItself(k *kustomizev1.Kustomization) bool {
	if k.Status.Inventory == nil {
		return false
	}
	id := strings.Join([]string{k.Namespace, k.Name, kustomizev1.GroupVersion.Group, "Kustomization"}, "_")
	for _, e := range k.Status.Inventory.Entries {
		if e.ID == id {
			return true
		}
	}
	return false
}

// shortRevision returns branch@commit with a short commit.
func shortRevision(revision string) string {
	branch, commit, ok := strings.Cut(revision, "@sha1:")
	if !ok || len(commit) < 7 {
		return revision
	}
	return branch + "@" + commit[:7]
}

// await requests a reconcile and waits until the object handled it and is ready. It shows each new message.
func (r *run) await(ctx context.Context, kind string, o reconciled, done func() bool) error {
	key := keyOf(o)
	requested := time.Now().Format(time.RFC3339Nano)
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, meta.ReconcileRequestAnnotation, requested)
	if err := r.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return clusterFault(fmt.Sprintf("cannot request a reconcile of %s '%s'", kind, key), err)
	}
	r.Output.Step("waiting for %s '%s'", kind, key)
	last := ""
	err := wait.PollUntilContextCancel(ctx, readInterval, true, func(ctx context.Context) (bool, error) {
		if err := r.Client.Get(ctx, key, o); err != nil {
			return false, err
		}
		status := o.CommonStatus()
		ready := apimeta.FindStatusCondition(status.Conditions, "Ready")
		current := status.ObservedGeneration == o.GetGeneration() && status.LastHandledReconcileAt == requested
		if ready == nil || !current {
			return false, nil
		}
		if ready.Status == metav1.ConditionTrue {
			return done(), nil
		}
		if ready.Message != last {
			last = ready.Message
			r.Output.Warn("%s '%s': %s", kind, key, last)
		}
		if apimeta.IsStatusConditionTrue(status.Conditions, "Stalled") {
			return false, errStalled
		}
		return false, nil
	})
	return r.explainWait(kind, key, last, err)
}

var errStalled = errors.New("it cannot succeed without a change")

// explainWait returns the fault for a wait that failed.
func (r *run) explainWait(kind string, key types.NamespacedName, last string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errStalled):
		return failed("%s '%s' is not ready: %s", kind, key, last).
			WithHint("Correct this, and run the command again: it continues here").Final()
	case wait.Interrupted(err) && last != "":
		return failed("%s '%s' did not become ready in time: %s", kind, key, last).
			WithHint("Correct this and run the command again: it continues here. Raise --timeout if it only needs time")
	case wait.Interrupted(err):
		return failed("%s '%s' was not reconciled in time", kind, key).
			WithHint("Look for the cause with kubectl -n %s get pods, and run the command again: it continues here",
				key.Namespace)
	}
	return clusterFault(fmt.Sprintf("cannot get %s '%s'", kind, key), err)
}
