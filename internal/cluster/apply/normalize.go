package apply

import (
	"context"
	"encoding/json"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/sluice-gitops/sluice/internal/text/diff"
)

// normalization selects changes of managed fields that come before an apply.
type normalization struct {
	convert  bool // convert all entries to the version of the manifest
	takeOver bool // make the fields of overridden managers ours
}

// normalized returns the managed fields of a live object with these changes. It reports false if there is nothing to
// change.
func (r *run) normalized(o *object, live *unstructured.Unstructured,
	n normalization) ([]metav1.ManagedFieldsEntry, bool) {
	fields, changed := live.GetManagedFields(), false
	if n.convert {
		fields, changed = inVersion(fields, o.manifest.GetAPIVersion())
	}
	if n.takeOver {
		var taken bool
		fields, taken = r.takeOver(o, live, fields)
		changed = changed || taken
	}
	return fields, changed
}

// checkNormalized makes a plan for an object whose dry-run was refused because of its managed fields. The fields cannot
// be changed in a check. So it dry-runs an update to the object that the apply will result in after the fields are
// normalized, which runs the same validation and admission. It returns no plan if the managed fields are
// normal, or with the error of the update.
func (r *run) checkNormalized(ctx context.Context, o *object, desired, live *unstructured.Unstructured,
	convert bool) (*plan, error) {
	fields, taken := live.GetManagedFields(), false
	if convert {
		var converted bool
		if fields, converted = inVersion(fields, desired.GetAPIVersion()); !converted {
			return nil, nil
		}
	}
	if !keepsOtherFields(desired, r.req.Owner) {
		fields, taken = r.takeOver(o, live, fields)
	}
	if !convert && !taken {
		return nil, nil
	}
	if isCreateOnly(live, r.req.Owner) {
		return r.planSkip(o, live), nil
	}
	p := &plan{action: Configured, desired: desired, version: live.GetResourceVersion(), takeOver: taken,
		convertFields: convert, previousOwner: otherOwner(live, r.req.Owner)}
	if live.GetDeletionTimestamp() != nil {
		if err := r.validate(ctx, o); err != nil {
			return nil, err
		}
		p.terminating = true
		return r.planCreate(p), nil
	}
	result := r.managers.applied(live, desired, fields)
	if err := r.dryRunUpdate(ctx, o, live, result, fields); err != nil && !dryRunUnsupported(err) {
		return nil, err
	}
	if r.lookup(r.req.Owner, o).sameDeclaration || r.reportsDiff() {
		p.live = live
		if r.preview {
			p.live, p.diff = nil, r.difference(live, result)
		}
	}
	return p, nil
}

// applied returns the object that an apply results in, for a live object with these managed fields.
func (m managers) applied(live, desired *unstructured.Unstructured,
	fields []metav1.ManagedFieldsEntry) *unstructured.Unstructured {
	rest := live.DeepCopy()
	ours := func(e metav1.ManagedFieldsEntry) bool { return m.isOurs(e) && e.APIVersion == desired.GetAPIVersion() }
	others := fieldsOf(fields, func(e metav1.ManagedFieldsEntry) bool { return !ours(e) })
	for p := range fieldsOf(fields, ours).All() {
		if !holds(others, p) && !hasField(desired.Object, p) {
			without(rest.Object, p)
		}
	}
	return diff.Overlay(rest, desired)
}

// dryRunUpdate dry-runs a JSON patch from a live object to another. It needs the same right as an apply.
func (r *run) dryRunUpdate(ctx context.Context, o *object, live, to *unstructured.Unstructured,
	fields []metav1.ManagedFieldsEntry) error {
	return r.update(ctx, o, live, to, fields, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll},
		FieldValidation: metav1.FieldValidationStrict})
}

// update sends a JSON patch from a live object to another with other managed fields. It conflicts if the live object
// has changed since, except in a dry-run.
func (r *run) update(ctx context.Context, o *object, live, to *unstructured.Unstructured,
	fields []metav1.ManagedFieldsEntry, options metav1.PatchOptions) error {
	patch := []map[string]any{{"op": "replace", "path": "/metadata/managedFields", "value": fields}}
	if len(options.DryRun) == 0 {
		patch = append(patch, map[string]any{"op": "replace", "path": "/metadata/resourceVersion",
			"value": live.GetResourceVersion()})
	}
	set := func(prefix string, before, after map[string]any, key string) {
		path := prefix + "/" + strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
		if value, ok := after[key]; ok {
			patch = append(patch, map[string]any{"op": "add", "path": path, "value": value})
		} else if _, ok := before[key]; ok {
			patch = append(patch, map[string]any{"op": "remove", "path": path})
		}
	}
	keys := map[string]bool{}
	for _, object := range []map[string]any{live.Object, to.Object} {
		for k := range object {
			keys[k] = true
		}
	}
	for k := range keys {
		if k != "apiVersion" && k != "kind" && k != "metadata" && k != "status" {
			set("", live.Object, to.Object, k)
		}
	}
	before, _ := live.Object["metadata"].(map[string]any)
	after, _ := to.Object["metadata"].(map[string]any)
	for _, k := range []string{"labels", "annotations", "finalizers", "ownerReferences"} {
		set("/metadata", before, after, k)
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	options.FieldManager = r.managers.own
	_, err = r.client(o.resource, o.ref.Namespace).Patch(ctx, o.ref.Name, types.JSONPatchType, data, options)
	return err
}

// normalize writes the managed fields of an object, unless they are normal already. This changes the ownership of
// fields, and no value. It returns the live object before and its resource version after that; nil if the object does
// not exist any more, as the apply then creates it.
func (r *run) normalize(ctx context.Context, o *object, n normalization) (before *unstructured.Unstructured,
	version string, err error) {
	client := r.client(o.resource, o.ref.Namespace)
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		before, err = client.Get(ctx, o.ref.Name, metav1.GetOptions{})
		if err != nil {
			before = nil
			return err
		}
		version = before.GetResourceVersion()
		fields, needed := r.normalized(o, before, n)
		if !needed {
			return nil
		}
		patch, err := json.Marshal([]map[string]any{
			{"op": "replace", "path": "/metadata/managedFields", "value": fields},
			// The patch conflicts if the object has changed since.
			{"op": "replace", "path": "/metadata/resourceVersion", "value": version},
		})
		if err != nil {
			return err
		}
		after, err := client.Patch(ctx, o.ref.Name, types.JSONPatchType, patch,
			metav1.PatchOptions{FieldManager: r.managers.own})
		if err == nil {
			version = after.GetResourceVersion()
		}
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil, "", nil
	}
	return before, version, err
}
