// Package postrender changes the rendered manifests of a release: spec.postRenderers, spec.commonMetadata and
// the labels that name the owner.
package postrender

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/postrenderer"
	release "helm.sh/helm/v4/pkg/release/v1"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/kio"
	"sigs.k8s.io/kustomize/kyaml/resid"
	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
	"sigs.k8s.io/yaml"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// Options say what to change.
type Options struct {
	PostRenderers  []helmv2.PostRenderer
	CommonMetadata *meta.CommonMetadata
	Labels         map[string]string // that name the owner; they take precedence over all others
}

// New returns a post-renderer for Helm's actions, or nil if there is nothing to change. Its builds end with the
// context. Hooks get no common metadata and no labels: they are not part of the inventory.
func New(ctx context.Context, o Options) postrenderer.PostRenderer {
	r := renderer{steps: o.PostRenderers, labels: map[string]string{},
		build: func(request build.Request) (*build.Result, error) { return build.Build(ctx, request) }}
	if o.CommonMetadata != nil {
		maps.Copy(r.labels, o.CommonMetadata.Labels)
		r.annotations = o.CommonMetadata.Annotations
	}
	maps.Copy(r.labels, o.Labels)
	if len(r.steps)+len(r.labels)+len(r.annotations) == 0 {
		return nil
	}
	return r
}

type renderer struct {
	steps               []helmv2.PostRenderer
	labels, annotations map[string]string
	build               func(build.Request) (*build.Result, error)
}

// Run implements Helm's interface.
func (r renderer) Run(in *bytes.Buffer) (*bytes.Buffer, error) {
	text := in.String()
	for i, step := range r.steps {
		if step.Kustomize == nil || strings.TrimSpace(text) == "" {
			continue
		}
		var err error
		if text, err = r.kustomize(text, step.Kustomize); err != nil {
			return nil, fault.New("", "spec.postRenderers[%d].kustomize failed", i).Because(err)
		}
	}
	if len(r.labels)+len(r.annotations) > 0 {
		var err error
		if text, err = r.addMetadata(text); err != nil {
			return nil, err
		}
	}
	return bytes.NewBufferString(text), nil
}

// manifests is the name of the file that kustomize reads; errors name it.
const manifests = "rendered-manifests.yaml"

// kustomize changes manifests with the limits of all builds: no network, no program, no other file.
func (r renderer) kustomize(text string, k *helmv2.Kustomize) (string, error) {
	request, err := buildRequest(k)
	if err != nil {
		return "", err
	}
	request.Tree = artifact.FromMap(map[string]string{
		manifests: text, "kustomization.yaml": "resources: [" + manifests + "]\n",
	})
	result, err := r.build(request)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for _, o := range result.Objects {
		document, err := yaml.Marshal(o.Object)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&out, "---\n%s", document)
	}
	return out.String(), nil
}

func buildRequest(k *helmv2.Kustomize) (build.Request, error) {
	var request build.Request
	for _, p := range k.Patches {
		request.Patches = append(request.Patches, types.Patch{Patch: p.Patch, Target: selector(p.Target)})
	}
	for _, p := range k.PatchesStrategicMerge {
		request.Patches = append(request.Patches, types.Patch{Patch: string(p.Raw)})
	}
	for _, p := range k.PatchesJSON6902 {
		operations, err := json.Marshal(p.Patch)
		if err != nil {
			return request, fmt.Errorf("patchesJson6902 is invalid: %w", err)
		}
		request.Patches = append(request.Patches, types.Patch{Patch: string(operations), Target: selector(&p.Target)})
	}
	for _, i := range k.Images {
		request.Images = append(request.Images, types.Image{Name: i.Name, NewName: i.NewName, NewTag: i.NewTag,
			Digest: i.Digest})
	}
	return request, nil
}

func selector(s *meta.Selector) *types.Selector {
	if s == nil {
		return nil
	}
	return &types.Selector{
		ResId: resid.ResId{Gvk: resid.Gvk{Group: s.Group, Version: s.Version, Kind: s.Kind}, Name: s.Name,
			Namespace: s.Namespace},
		AnnotationSelector: s.AnnotationSelector, LabelSelector: s.LabelSelector,
	}
}

// addMetadata sets the labels and annotations. It keeps the comments and the formatting of the manifests.
func (r renderer) addMetadata(text string) (string, error) {
	objects, err := kio.ParseAll(text)
	if err != nil {
		return "", fmt.Errorf("cannot parse the rendered manifests: %w", err)
	}
	for _, o := range objects {
		if err := r.mark(o); err != nil {
			return "", fmt.Errorf("cannot set the metadata of %s '%s': %w", o.GetKind(), o.GetName(), err)
		}
	}
	return kio.StringAll(objects)
}

// mark sets the metadata of an object, or of the items of a list.
func (r renderer) mark(o *kyaml.RNode) error {
	if kyaml.IsMissingOrNull(o) || o.YNode().Kind != kyaml.MappingNode {
		return nil
	}
	if items := o.Field("items"); items != nil && o.GetKind() == "List" {
		return items.Value.VisitElements(r.mark)
	}
	if _, isHook := o.GetAnnotations()[release.HookAnnotation]; isHook {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(r.labels)) {
		if err := o.PipeE(kyaml.SetLabel(key, r.labels[key])); err != nil {
			return err
		}
	}
	for _, key := range slices.Sorted(maps.Keys(r.annotations)) {
		if err := o.PipeE(kyaml.SetAnnotation(key, r.annotations[key])); err != nil {
			return err
		}
	}
	return nil
}
