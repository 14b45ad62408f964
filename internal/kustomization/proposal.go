package kustomization

import (
	"context"
	"errors"
	"fmt"
	"sync"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build"
	"github.com/sluice-gitops/sluice/internal/cluster/risk"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// proposal is what a pass would change. It is built and compared with the cluster when a gate needs it, each at most
// once in a pass. It does not change the state.
type proposal struct {
	source  *meta.Artifact
	what    func() (string, error) // identifies what would be applied
	propose func() (*rollout.Proposal, error)
}

// proposed is what a proposal builds.
type proposed struct {
	inputs *inputs
	tree   *artifact.Tree
	result *build.Result // nil if the last build is current
	digest string
}

func (c *Controller) newProposal(ctx context.Context, pass *reconcile.Pass[*kustomizev1.Kustomization],
	source *meta.Artifact) *proposal {
	built := sync.OnceValues(func() (*proposed, error) { return c.proposeBuild(ctx, pass.Object, source) })
	return &proposal{
		source: source,
		what: func() (string, error) {
			b, err := built()
			if err != nil {
				return "", err
			}
			return decision(pass.Object, b.digest), nil
		},
		propose: sync.OnceValues(func() (*rollout.Proposal, error) {
			b, err := built()
			if err != nil {
				return nil, err
			}
			return c.compare(ctx, pass, source, b)
		}),
	}
}

// admits reports whether the gates let a proposal through.
func (r *run) admits(p *proposal) bool {
	return rollout.Admit(&r.state.decided, r.pass, p.source.Revision, p.what, p.propose) == nil
}

// decision identifies what gates with rules decide about: a build, and the settings that it is applied with.
func decision(obj *kustomizev1.Kustomization, digest string) string {
	return fmt.Sprintf("%d/%s", obj.Generation, digest)
}

// proposeBuild builds a source, unless the last build is current.
func (c *Controller) proposeBuild(ctx context.Context, obj *kustomizev1.Kustomization,
	source *meta.Artifact) (*proposed, error) {
	if waiting := c.checkDependencies(ctx, obj, source); waiting != nil {
		return nil, errors.New(waiting.String()) // the change depends on what the dependencies will apply
	}
	in, err := c.inputsOf(ctx, obj)
	if err != nil {
		return nil, err
	}
	tree, err := c.fetch(ctx, obj, source)
	if err != nil {
		return nil, err
	}
	p := &proposed{inputs: in, tree: tree}
	if b := &c.stateOf(obj).build; b.isCurrent(obj, in, tree) && b.err == nil {
		p.digest = b.digest
		return p, nil
	}
	if p.result, err = c.buildTree(ctx, obj, source.Revision, tree, in); err != nil {
		return nil, err
	}
	p.digest = "sha256:" + p.result.Digest
	return p, nil
}

// compare returns what an apply of a build would change.
func (c *Controller) compare(ctx context.Context, pass *reconcile.Pass[*kustomizev1.Kustomization],
	source *meta.Artifact, p *proposed) (*rollout.Proposal, error) {
	obj := pass.Object
	target, err := c.Clusters.Target(ctx, refOf(obj), c.destination(obj))
	if err != nil {
		return nil, err
	}
	if p.result == nil {
		if p.result, err = c.buildTree(ctx, obj, source.Revision, p.tree, p.inputs); err != nil {
			return nil, err
		}
	}
	req, err := newApplyRequest(obj, p.result, applyOptions{
		requested: pass.Requested, resync: pass.Requested || c.needsResync(c.stateOf(obj)),
		strictFields: c.Options.StrictFields,
	})
	if err != nil {
		return nil, err
	}
	req.Inspect = true
	if !obj.Spec.Prune {
		req.Previous = nil // nothing would be deleted
	}
	planned, err := target.Cluster.Diff(ctx, req)
	if err != nil {
		return nil, p.inputs.redact(err)
	}
	out := rollout.NewProposal(refOf(obj), len(rollout.Inventory(obj.Status.Inventory)), source.Revision, planned,
		p.result.Veil)
	c.describe(ctx, obj, source, p.tree, &out.Change)
	out.Change.Identify(pass.Seal, decision(obj, p.digest))
	return out, nil
}

// describe adds to a change what is known of its commit. What is not known stays empty: rules that ask for it fail.
func (c *Controller) describe(ctx context.Context, obj *kustomizev1.Kustomization, source *meta.Artifact,
	tree *artifact.Tree, change *risk.Change) {
	change.Author, change.Message = source.Metadata[meta.CommitAuthorKey], source.Metadata[meta.CommitSubjectKey]
	change.Signers = c.signers(ctx, obj, source)
	change.Signed = len(change.Signers) > 0
	before, err := c.Applied.Tree(string(obj.UID))
	if err != nil && obj.Status.LastAppliedRevision != "" {
		return // what was applied is not retained
	}
	if files, err := artifact.ChangedFiles(before, tree); err == nil {
		change.Files = files
	}
}
