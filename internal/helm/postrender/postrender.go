// Package postrender changes the rendered manifests of a release: spec.postRenderers, spec.commonMetadata and
// the labels that name the owner. It changes objects, not text: values are those that Helm itself would apply.
package postrender

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/resid"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build"
	"github.com/sluice-gitops/sluice/internal/helm/render"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Options say what to change.
type Options struct {
	PostRenderers  []helmv2.PostRenderer
	CommonMetadata *meta.CommonMetadata
	Labels         map[string]string // that name the owner; they take precedence over all others
	// Strategy says how hooks are changed: with the other objects (combined, the default), on their own (separate), or
	// not at all (nohooks).
	Strategy string
	// Warn gets warnings about objects that probably are not as meant; may be nil.
	Warn func(text string)
}

// Strategies of [Options], as in spec.postRenderStrategy.
const (
	strategySeparate = "separate"
	strategyNoHooks  = "nohooks"
)

// Change returns rendered files with the changes. Builds end with the context.
func Change(ctx context.Context, files []render.File, o Options) ([]render.File, error) {
	r := renderer{steps: o.PostRenderers, labels: map[string]string{},
		build: func(request build.Request) (*build.Result, error) { return build.Build(ctx, request) }}
	if o.CommonMetadata != nil {
		maps.Copy(r.labels, o.CommonMetadata.Labels)
		r.annotations = o.CommonMetadata.Annotations
	}
	maps.Copy(r.labels, o.Labels)
	if len(r.steps)+len(r.labels)+len(r.annotations) == 0 {
		return files, nil
	}
	documents, others, err := parse(files)
	if err != nil {
		return nil, err
	}
	if o.Warn != nil {
		for _, d := range documents {
			d.warn(o.Warn)
		}
	}
	var out []*document
	for _, group := range groups(documents, o.Strategy) {
		if group.isChanged {
			if group.documents, err = r.change(group.documents); err != nil {
				return nil, err
			}
		}
		out = append(out, group.documents...)
	}
	written, err := write(out)
	return append(others, written...), err
}

// group are documents that are changed together, or not at all.
type group struct {
	documents []*document
	isChanged bool
}

// groups returns the documents by the strategy.
func groups(documents []*document, strategy string) []group {
	if strategy != strategySeparate && strategy != strategyNoHooks {
		return []group{{documents: documents, isChanged: true}}
	}
	hooks := group{isChanged: strategy == strategySeparate}
	manifests := group{isChanged: true}
	for _, d := range documents {
		if d.isHook() {
			hooks.documents = append(hooks.documents, d)
		} else {
			manifests.documents = append(manifests.documents, d)
		}
	}
	return []group{hooks, manifests}
}

type renderer struct {
	steps               []helmv2.PostRenderer
	labels, annotations map[string]string
	build               func(build.Request) (*build.Result, error)
}

// change returns documents with the changes.
func (r renderer) change(documents []*document) ([]*document, error) {
	for i, step := range r.steps {
		if step.Kustomize == nil || len(documents) == 0 {
			continue
		}
		var err error
		if documents, err = r.kustomize(documents, step.Kustomize); err != nil {
			return nil, fault.New("", "spec.postRenderers[%d].kustomize failed", i).Because(err)
		}
	}
	for _, d := range documents {
		d.text = ""
		r.mark(d.object)
	}
	return documents, nil
}

// manifests is the name of the file that kustomize reads; errors name it.
const manifests = "rendered-manifests.yaml"

// kustomize changes objects with the limits of all builds: no network, no program, no other file.
func (r renderer) kustomize(documents []*document, k *helmv2.Kustomize) ([]*document, error) {
	if err := checkForKustomize(documents); err != nil {
		return nil, err
	}
	request, err := buildRequest(k)
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	for _, d := range documents {
		set(d.object, "annotations", fileAnnotation, d.file)
		// JSON is YAML that all parsers read alike.
		b, err := json.Marshal(hideNumbers(d.object))
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&text, "---\n%s\n", b)
	}
	request.Tree = artifact.FromMap(map[string]string{
		manifests: text.String(), "kustomization.yaml": "resources: [" + manifests + "]\n",
	})
	result, err := r.build(request)
	if err != nil {
		return nil, err
	}
	var out []*document
	for i, o := range result.Objects {
		object, _ := showNumbers(o.Object).(map[string]any)
		out = append(out, &document{file: takeFile(object, i), object: object})
	}
	return out, nil
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

// mark sets the metadata of an object, or of the items of a list.
func (r renderer) mark(object map[string]any) {
	if items, ok := object["items"].([]any); ok {
		for _, item := range items {
			if o, ok := item.(map[string]any); ok {
				r.mark(o)
			}
		}
		return
	}
	for _, key := range slices.Sorted(maps.Keys(r.labels)) {
		set(object, "labels", key, r.labels[key])
	}
	for _, key := range slices.Sorted(maps.Keys(r.annotations)) {
		set(object, "annotations", key, r.annotations[key])
	}
}

// set sets a label or an annotation. It leaves alone what is not a map, which the API server refuses with a message.
func set(object map[string]any, field, key, value string) {
	at := object
	for _, name := range []string{"metadata", field} {
		if at[name] == nil {
			at[name] = map[string]any{}
		}
		next, ok := at[name].(map[string]any)
		if !ok {
			return
		}
		at = next
	}
	at[key] = value
}
