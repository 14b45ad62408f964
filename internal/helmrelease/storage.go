package helmrelease

import (
	"context"
	"slices"
	"time"

	"helm.sh/helm/v4/pkg/release/common"
	helmrelease "helm.sh/helm/v4/pkg/release/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/helm/digest"
	"github.com/sluice-gitops/sluice/internal/helm/storage"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// storageTimeout bounds one request to the storage.
const storageTimeout = time.Minute

// releaseStorage is the storage of releases in a namespace of the target.
type releaseStorage struct {
	*storage.Driver
	namespace string
}

func openStorage(target *rollout.Target, namespace string) (*releaseStorage, error) {
	cfg := rest.CopyConfig(target.Config)
	cfg.Timeout = storageTimeout // Helm's storage takes no context
	typed, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return &releaseStorage{storage.New(typed.CoreV1().Secrets(namespace)), namespace}, nil
}

// observed is what is stored of a release.
type observed struct {
	history []*helmrelease.Release // newest first
	last    *helmrelease.Release   // nil if there is none
}

// observe reads what is stored of the release.
func (r *run) observe(ctx context.Context) (*observed, error) {
	history, err := r.storage.History(ctx, r.name)
	if err != nil {
		return nil, fault.New(meta.ReconciliationFailedReason, "cannot read release '%s' in namespace '%s'", r.name,
			r.storage.namespace).Because(err)
	}
	o := &observed{history: history}
	if len(history) > 0 {
		o.last = history[0]
		r.memory.Release()
		r.memory, err = takeManifests(ctx, storedRelease, textsOf(o.last)...)
	}
	return o, err
}

// compared returns the releases before the last one that an upgrade compares with: up to the deployed one.
func (o *observed) compared() []*helmrelease.Release {
	for i, rel := range o.history {
		if rel.Info.Status == common.StatusDeployed {
			return o.history[1 : i+1]
		}
	}
	return o.history[min(len(o.history), 1):]
}

// isRecorded reports whether the status has a snapshot of the release as it is stored.
func isRecorded(obj *helmv2.HelmRelease, rel *helmrelease.Release) bool {
	if len(obj.Status.History) == 0 || rel == nil {
		return false
	}
	s := obj.Status.History[0]
	return hasVersionOf(s, rel) && s.Digest == digest.Release(rel, s.OCIDigest)
}

// isSnapshotOf reports whether a snapshot is of a stored release, in any state. A release that was uninstalled and
// installed again has the same name and version, but another time of its install.
func isSnapshotOf(s helmv2.Snapshot, rel *helmrelease.Release) bool {
	return hasVersionOf(s, rel) && rel.Info != nil &&
		s.FirstDeployed.Unix() == rel.Info.FirstDeployed.Unix()
}

// hasVersionOf reports whether a snapshot has the name, the namespace and the version of a release.
func hasVersionOf(s helmv2.Snapshot, rel *helmrelease.Release) bool {
	return s.Name == rel.Name && s.Namespace == rel.Namespace && s.Version == rel.Version
}

// previous returns the newest stored release before a version that was deployed successfully.
func (o *observed) previous(before int, history []helmv2.Snapshot) *helmrelease.Release {
	for _, rel := range o.history {
		status := rel.Info.Status
		if rel.Version < before && (status == "superseded" || status == "deployed") && !testsFailed(rel, history) {
			return rel
		}
	}
	return nil
}

// testsFailed reports whether the tests of a release failed.
func testsFailed(rel *helmrelease.Release, history []helmv2.Snapshot) bool {
	return slices.ContainsFunc(history, func(s helmv2.Snapshot) bool {
		return isSnapshotOf(s, rel) && hasFailedTest(s)
	})
}

func hasFailedTest(s helmv2.Snapshot) bool {
	for _, t := range s.TestHooks {
		if t.Phase == string(helmrelease.HookPhaseFailed) {
			return true
		}
	}
	return false
}
