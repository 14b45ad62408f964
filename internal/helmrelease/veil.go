package helmrelease

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"

	chart "helm.sh/helm/v4/pkg/chart/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/internal/helm/kube"
	"github.com/sluice-gitops/sluice/internal/helm/render"
	"github.com/sluice-gitops/sluice/internal/helm/values"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// newVeil returns what hides values of Secrets in the objects of the release: the chart is rendered again with
// placeholders for values from Secrets, and for Secrets that templates look up.
func (r *run) newVeil(ctx context.Context) *redact.Veil {
	veil := &redact.Veil{Secrets: r.secrets, Before: r.state.shown}
	veil.Render = func() (objects, placeholders []*unstructured.Unstructured, err error) {
		return r.renderVeiled(ctx)
	}
	if !readsSecrets(r.obj) {
		veil.Unused = func() bool {
			loaded, err := loadChart(ctx, r.tree, r.desired.chart)
			return err == nil && !looksUp(loaded.chart)
		}
	}
	return veil
}

// readsSecrets reports whether values of a HelmRelease come from Secrets.
func readsSecrets(obj *helmv2.HelmRelease) bool {
	for _, ref := range obj.Spec.ValuesFrom {
		if ref.Kind == "Secret" || ref.IsFile() && obj.Spec.Decryption != nil {
			return true
		}
	}
	return false
}

// looksUp reports whether the templates of a chart may look up objects.
func looksUp(c *chart.Chart) bool {
	for _, t := range c.Templates {
		if bytes.Contains(t.Data, []byte("lookup")) {
			return true
		}
	}
	return slices.ContainsFunc(c.Dependencies(), looksUp)
}

// renderVeiled returns the objects of the next release, and the same objects rendered with placeholders.
func (r *run) renderVeiled(ctx context.Context) (objects, placeholders []*unstructured.Unstructured, err error) {
	history, err := r.storage.History(ctx, r.name)
	if err != nil {
		return nil, nil, err
	}
	o := &observed{history: history}
	if len(history) > 0 {
		o.last = history[0]
	}
	real, err := r.dryRun(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	if objects, err = r.allIn(real); err != nil {
		return nil, nil, err
	}
	loaded, result, err := r.renderPlaceholders(ctx, r.nextRelease(o))
	if err != nil {
		return nil, nil, err
	}
	hidden, err := r.assemble(ctx, loaded, result)
	if err != nil {
		return nil, nil, err
	}
	placeholders, err = r.allIn(hidden)
	return objects, placeholders, err
}

// allIn returns the objects and hooks of a dry-run.
func (r *run) allIn(d *dryRun) ([]*unstructured.Unstructured, error) {
	objects, err := r.objectsIn(d)
	if err != nil {
		return nil, err
	}
	for _, h := range d.hooks {
		hooks, err := kube.Decode(strings.NewReader(h.Manifest))
		if err != nil {
			return nil, err
		}
		objects = append(objects, hooks...)
	}
	for _, c := range d.crds {
		definitions, err := kube.Decode(bytes.NewReader(c.File.Data))
		if err != nil {
			return nil, err
		}
		objects = append(objects, definitions...)
	}
	return objects, nil
}

// renderPlaceholders renders the chart with placeholders for values of Secrets.
func (r *run) renderPlaceholders(ctx context.Context, release render.Release) (*loadedChart, *render.Result, error) {
	placeholders := redact.Unlike()
	refs := r.obj.Spec.ValuesFrom
	composed, err := values.Compose(ctx, values.WithPlaceholders(r.valuesReader(r.obj), refs, placeholders),
		r.obj.Namespace, refs, r.obj.Spec.Values)
	if err != nil {
		return nil, nil, err
	}
	r.keep(composed.Memory)
	lookup := lookupIn(r.target, r.keep)
	return r.renderWith(ctx, release, composed.Values, func(ctx context.Context, apiVersion, kind, namespace,
		name string) (map[string]any, error) {
		found, err := lookup(ctx, apiVersion, kind, namespace, name)
		return placeholders.Found(found), err
	})
}

// withoutSecrets returns the error of a render without values of Secrets, which a template may have put into it in any
// form: that of a render with placeholders.
func (r *run) withoutSecrets(ctx context.Context, release render.Release, err error) error {
	if !errors.As(err, new(*render.Error)) {
		return err
	}
	if !readsSecrets(r.obj) {
		loaded, loadErr := loadChart(ctx, r.tree, r.desired.chart)
		if loadErr != nil || !looksUp(loaded.chart) {
			return err
		}
	}
	_, _, other := r.renderPlaceholders(ctx, release)
	text := "rendering fails because of values from Secrets. The error is not shown, because it may contain a " +
		"secret. Run `sluice build helmrelease " + r.obj.Name + "` to see it"
	if errors.As(other, new(*render.Error)) {
		text = other.Error()
	}
	return redact.Reword(err, text)
}

// redact returns an error without what comes from secrets. What kind of error it is stays.
func (r *run) redact(err error) error { return r.veil.Error(err) }
