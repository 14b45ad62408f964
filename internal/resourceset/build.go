package resourceset

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/build/expand"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// build is the objects of a ResourceSet, by step.
type build struct {
	steps  [][]*unstructured.Unstructured
	inputs int
}

// objects returns the objects of the first n steps.
func (b *build) objects(n int) (all []*unstructured.Unstructured) {
	for _, s := range b.steps[:n] {
		all = append(all, s...)
	}
	return all
}

// build returns the objects to apply, or nil if what was applied is still current.
func (r *run) build(ctx context.Context, providers []expand.Provider) (*build, error) {
	b, a := &r.state.build, &r.state.apply
	q := request(r.obj, providers)
	key, err := keyOfBuild(r.obj, q)
	if err != nil {
		return nil, err
	}
	reads := sourceReader{ctx: ctx, run: r}
	isSame := b.key == key && !r.pass.Requested
	if isSame && b.err != nil {
		return nil, b.err
	}
	if isSame && a.isComplete && !r.needsCorrection() && r.jobsAreFine(ctx) {
		content, err := reads.digestOf(b.sources)
		if err == nil && content == b.content {
			return nil, nil
		}
	}
	r.worked = true
	built, err := render(ctx, r.Renderer, r.obj, q)
	if err == nil {
		err = r.complete(built, &reads)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	a.isComplete = false
	b.sources = reads.sources
	if err != nil {
		if b.key, b.err = "", nil; isTerminal(err) {
			b.key, b.err = key, err
		}
		return nil, err
	}
	b.key, b.err = key, nil
	return built, r.record(built, &reads)
}

// record records a successful render.
func (r *run) record(built *build, reads *sourceReader) error {
	b, all := &r.state.build, built.objects(len(built.steps))
	b.external = reads.external
	content, err := reads.digestOf(b.sources)
	if err != nil {
		return err
	}
	b.content = content
	h := sha256.New()
	e := json.NewEncoder(h)
	for _, o := range all {
		if err := e.Encode(o.Object); err != nil {
			return buildFailed(err)
		}
	}
	b.digest = "sha256:" + hex.EncodeToString(h.Sum(nil))
	b.counts = map[string]string{"inputs": strconv.Itoa(built.inputs), "resources": strconv.Itoa(len(all))}
	if n := len(r.obj.Spec.Steps); n > 0 {
		b.counts["steps"] = strconv.Itoa(n)
	}
	b.declared = rollout.DeclaredBy(rollout.OwnerOf(refOf(r.obj)), all, "")
	b.jobs = nil
	for _, o := range all {
		if recreatesOnFailure(o) {
			b.jobs = append(b.jobs, apply.RefOf(o))
		}
	}
	return nil
}

// request returns what to render for a ResourceSet with the inputs of its providers.
func request(obj *controlplanev1.ResourceSet, providers []expand.Provider) expand.Request {
	q := expand.Request{Providers: providers, HasInputs: len(obj.Spec.Inputs)+len(obj.Spec.InputsFrom) > 0}
	if s := obj.Spec.InputStrategy; s != nil {
		q.Strategy, q.IncludeEmpty = s.Name, s.IncludeEmptyProviders
	}
	steps := obj.Spec.Steps
	if len(steps) == 0 {
		steps = []controlplanev1.ResourceSetStep{{Resources: obj.Spec.Resources,
			ResourcesTemplate: obj.Spec.ResourcesTemplate}}
	}
	for _, s := range steps {
		step := expand.Step{Name: s.Name, Template: s.ResourcesTemplate}
		for _, raw := range s.Resources {
			step.Resources = append(step.Resources, raw.Raw)
		}
		q.Steps = append(q.Steps, step)
	}
	return q
}

// keyOfBuild identifies what is rendered.
func keyOfBuild(obj *controlplanev1.ResourceSet, q expand.Request) (string, error) {
	text, err := json.Marshal(struct {
		Generation int64
		Request    expand.Request
	}{obj.Generation, q})
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), err
}

// render renders the templates.
func render(ctx context.Context, by Renderer, obj *controlplanev1.ResourceSet, q expand.Request) (*build, error) {
	result, err := by.Expand(ctx, fmt.Sprintf("ResourceSet '%s/%s'", obj.Namespace, obj.Name), q)
	if err != nil {
		return nil, buildFailed(err)
	}
	b := &build{steps: result.Steps, inputs: result.Inputs}
	setCommonMetadata(obj.Spec.CommonMetadata, b.objects(len(b.steps)))
	return b, nil
}

// Render returns the objects of a ResourceSet, without what its controller completes them with.
func Render(ctx context.Context, by Renderer, obj *controlplanev1.ResourceSet,
	providers []expand.Provider) ([]*unstructured.Unstructured, error) {
	b, err := render(ctx, by, obj, request(obj, providers))
	if err != nil {
		return nil, err
	}
	return b.objects(len(b.steps)), nil
}

// Input is an input set, and the objects that are rendered with it.
type Input struct {
	Values  map[string]any
	Objects []apply.Ref
}

// Inputs returns the input sets of a ResourceSet, and the objects of each. Without inputs it returns none.
func Inputs(ctx context.Context, by Renderer, obj *controlplanev1.ResourceSet,
	providers []expand.Provider) ([]Input, error) {
	q := request(obj, providers)
	if !q.HasInputs {
		return nil, nil
	}
	sets, err := expand.Sets(q)
	if err != nil {
		return nil, buildFailed(err)
	}
	inputs := make([]Input, len(sets))
	for i, s := range sets {
		inputs[i].Values = s
	}
	result, err := by.Expand(ctx, fmt.Sprintf("ResourceSet '%s/%s'", obj.Namespace, obj.Name), q)
	if err != nil {
		return inputs, buildFailed(err)
	}
	for n, step := range result.Steps {
		for i, o := range step {
			in := &inputs[result.From[n][i]]
			in.Objects = append(in.Objects, apply.RefOf(o))
		}
	}
	return inputs, nil
}

// buildFailed returns an error of the spec or of the inputs. A retry does not help, unless the fault says so.
func buildFailed(err error) error {
	f := fault.As(err)
	if f == nil {
		return fault.New(meta.BuildFailedReason, "%s", err).Final()
	}
	if f.Reason == "" {
		f.Reason = meta.BuildFailedReason
	}
	return err
}

// complete adds to the rendered objects the data and checksums of other objects.
func (r *run) complete(built *build, reads *sourceReader) error {
	all := built.objects(len(built.steps))
	for _, o := range all {
		if err := reads.copyInto(o); err != nil {
			return fmt.Errorf("%s '%s/%s': %w", o.GetKind(), o.GetNamespace(), o.GetName(), err)
		}
	}
	return reads.addChecksums(all)
}

func setCommonMetadata(common *meta.CommonMetadata, objects []*unstructured.Unstructured) {
	if common == nil {
		return
	}
	for _, o := range objects {
		o.SetLabels(merged(o.GetLabels(), common.Labels))
		o.SetAnnotations(merged(o.GetAnnotations(), common.Annotations))
	}
}

// merged returns a map with the entries of both; those of the second win.
func merged(a, b map[string]string) map[string]string {
	if len(b) == 0 {
		return a
	}
	out := maps.Clone(a)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, b)
	return out
}
