package manager

import (
	"cmp"
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/image/automate"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// addMembership prepares the process to be one of the replicas that share all objects, with --auto-shards.
func (p *process) addMembership(cfg *rest.Config) (err error) {
	if p.kernel.Shards == nil {
		return nil
	}
	p.membership, err = kubeclient.NewMembership(cfg, p.Options, p.kernel.Shards, p.fence, p.health)
	return err
}

// imagesKey is the key of everything about images: policies and the API of tags read the tags of all repositories.
const imagesKey = "images"

// imageKey returns the key of an object whose replica has the tags.
func imageKey[T any](T) string { return imagesKey }

// hasTags reports whether this replica scans images.
func (p *process) hasTags() bool {
	return p.leads() && (p.kernel.Shards == nil || p.kernel.Shards.Owns(imagesKey))
}

// gitKey returns the key of a GitRepository: those of one URL are on one replica, which has one mirror.
func gitKey(obj *sourcev1.GitRepository) string { return "git/" + obj.Spec.URL }

// chartKey returns the key of a HelmChart: that of its source, whose index it uses.
func chartKey(obj *sourcev1.HelmChart) string {
	s := obj.Spec.SourceRef
	return reconcile.RefTo(schema.GroupKind{Group: sourcev1.GroupVersion.Group, Kind: s.Kind}, obj.Namespace,
		s.Name).ShardKey()
}

// automationKey returns the key of an ImageUpdateAutomation: that of its GitRepository, whose mirror it uses.
func (p *process) automationKey(obj *imagev1.ImageUpdateAutomation) string {
	s := obj.Spec.SourceRef
	repository := types.NamespacedName{Namespace: cmp.Or(s.Namespace, obj.Namespace), Name: s.Name}
	if key, err := p.repositoryKey(context.Background(), repository); err == nil {
		return key
	}
	return reconcile.RefTo(automate.GroupKind, obj.Namespace, obj.Name).ShardKey()
}

func (p *process) repositoryKey(ctx context.Context, name types.NamespacedName) (string, error) {
	repository := &sourcev1.GitRepository{}
	err := p.mgr.GetClient().Get(ctx, name, repository)
	return gitKey(repository), err
}

// reconciles reports whether this process reconciles a GitRepository.
func (p *process) reconciles(ctx context.Context, repository types.NamespacedName) bool {
	if p.kernel.Shards == nil {
		return true
	}
	key, err := p.repositoryKey(ctx, repository)
	return err == nil && p.kernel.Shards.Owns(key)
}
