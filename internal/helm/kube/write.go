package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	helmkube "helm.sh/helm/v4/pkg/kube"
	release "helm.sh/helm/v4/pkg/release/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/cluster/health"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// Metadata by which Helm marks the objects of a release.
const (
	releaseNameAnnotation      = "meta.helm.sh/release-name"
	releaseNamespaceAnnotation = "meta.helm.sh/release-namespace"
	managedByLabel             = "app.kubernetes.io/managed-by"
	managedByHelm              = "Helm"
)

// waitRetry is the pause before an apply that waited for the cluster, such as for a definition, is continued.
const waitRetry = time.Second

// SetMetadata marks an object as Helm does: as part of a release.
func SetMetadata(o *unstructured.Unstructured, name, namespace string) {
	labels, annotations := o.GetLabels(), o.GetAnnotations()
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	labels[managedByLabel] = managedByHelm
	annotations[releaseNameAnnotation], annotations[releaseNamespaceAnnotation] = name, namespace
	o.SetLabels(labels)
	o.SetAnnotations(annotations)
}

// create applies the objects of a release. Others, such as hooks, are created one after another, without taking over
// fields of others.
func (c *Client) create(list helmkube.ResourceList) (*helmkube.Result, error) {
	if isPartOfRelease(list) && c.ServerSide {
		return c.apply(nil, list)
	}
	result := &helmkube.Result{}
	for _, info := range list {
		if err := c.createOne(info); err != nil {
			return result, err
		}
		result.Created = append(result.Created, info)
	}
	return result, nil
}

func (c *Client) createOne(info *resource.Info) error {
	o, ok := info.Object.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("%s is not an unstructured object", info.Name)
	}
	if err := c.removeLeft(info, o); err != nil {
		return err
	}
	created, err := c.write(info, o)
	if err != nil {
		return fmt.Errorf("cannot create %s: %w", refOf(info), err)
	}
	return info.Refresh(created, true)
}

// hookRemoval bounds the wait until what an earlier hook left is gone.
const hookRemoval = time.Minute

// removeLeft deletes the Job or Pod that an earlier run of a hook left, such as a failed one that the chart deletes
// only after a success. It would neither run again nor accept another template.
func (c *Client) removeLeft(info *resource.Info, o *unstructured.Unstructured) error {
	if kind := info.Mapping.GroupVersionKind.GroupKind(); kind != jobKind && kind != podKind ||
		o.GetAnnotations()[release.HookAnnotation] == "" {
		return nil
	}
	live, err := c.resource(info).Get(c.ctx, info.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("cannot read %s, which an earlier hook may have left: %w", refOf(info), err)
	case live.GetAnnotations()[release.HookAnnotation] == "":
		return fmt.Errorf("%s exists, and is not a hook", refOf(info))
	}
	policy, uid := metav1.DeletePropagationBackground, live.GetUID()
	err = c.resource(info).Delete(c.ctx, info.Name, metav1.DeleteOptions{PropagationPolicy: &policy,
		Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot delete %s, which an earlier hook left: %w", refOf(info), err)
	}
	return waiter{c}.WaitForDelete(helmkube.ResourceList{info}, hookRemoval)
}

func (c *Client) write(info *resource.Info, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if !c.ServerSide {
		return c.resource(info).Create(c.ctx, o, metav1.CreateOptions{FieldManager: FieldManager})
	}
	body, err := o.MarshalJSON()
	if err != nil {
		return nil, err
	}
	return c.resource(info).Patch(c.ctx, info.Name, types.ApplyPatchType, body, metav1.PatchOptions{
		FieldManager: FieldManager, FieldValidation: metav1.FieldValidationStrict, Force: ptr.To(false)})
}

func (c *Client) resource(info *resource.Info) dynamic.ResourceInterface {
	return c.Target.Cluster.Dynamic().Resource(info.Mapping.Resource).Namespace(info.Namespace)
}

// delete deletes objects. Problems of some do not keep others from being deleted; the error joins them.
func (c *Client) delete(list helmkube.ResourceList, policy metav1.DeletionPropagation) (*helmkube.Result, error) {
	result := &helmkube.Result{}
	var problems []error
	for _, info := range list {
		err := c.resource(info).Delete(c.ctx, info.Name, metav1.DeleteOptions{PropagationPolicy: &policy})
		if err != nil && !apierrors.IsNotFound(err) {
			problems = append(problems, fmt.Errorf("cannot delete %s: %w", refOf(info), err))
			continue
		}
		if err != nil && c.isGone(info.Mapping.GroupVersionKind) {
			c.warnGone(info.Mapping.GroupVersionKind, info.Name)
		}
		result.Deleted = append(result.Deleted, info)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.problems = append(c.problems, problems...)
	return result, errors.Join(problems...)
}

// WithProblems adds to an error of Helm why objects could not be deleted, which Helm leaves out.
func (c *Client) WithProblems(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil || len(c.problems) == 0 || errors.Is(err, c.problems[0]) {
		return err
	}
	return fmt.Errorf("%w: %w", err, errors.Join(c.problems...))
}

// update makes the cluster match the target. Objects that are no longer part of the release are deleted last.
func (c *Client) update(original, target helmkube.ResourceList,
	options ...helmkube.ClientUpdateOption) (*helmkube.Result, error) {
	var result *helmkube.Result
	var err error
	if c.ServerSide {
		result, err = c.apply(original, target)
	} else if result, err = c.helm.Update(original, target, options...); result != nil {
		c.record(result)
	}
	if err != nil {
		return result, err
	}
	for _, manifest := range c.Abandoned {
		c.Stored = append(c.Stored, manifest)
		list, err := c.Build(manifest)
		if err != nil {
			continue // a manifest that never could be applied
		}
		if err := c.deleteRemoved(list.Difference(original).Difference(target), result); err != nil {
			return result, err
		}
	}
	return result, nil
}

// isPartOfRelease reports whether objects were marked as part of a release. Helm marks neither hooks nor namespaces.
func isPartOfRelease(list helmkube.ResourceList) bool {
	for _, info := range list {
		o, err := meta.Accessor(info.Object)
		if err != nil || o.GetAnnotations()[releaseNameAnnotation] == "" ||
			o.GetAnnotations()[release.HookAnnotation] != "" {
			return false
		}
	}
	return true
}

// record adds what Helm's client wrote to the changes.
func (c *Client) record(result *helmkube.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for action, list := range map[apply.Action]helmkube.ResourceList{
		apply.Created: result.Created, apply.Configured: result.Updated, apply.Deleted: result.Deleted,
	} {
		for _, info := range list {
			c.changes = append(c.changes, apply.Change{Ref: refOf(info), Action: action})
		}
	}
}

// apply makes the cluster match the target, and deletes what is only in the original.
func (c *Client) apply(original, target helmkube.ResourceList) (*helmkube.Result, error) {
	result := &helmkube.Result{}
	request := apply.Request{Owner: rollout.OwnerOf(c.Owner), Force: c.Force, Ignore: c.Ignore, Veil: c.Veil,
		MaxDiffs: c.MaxDiffs, Resync: true, KeepOthers: true}
	byRef := map[apply.Ref]*resource.Info{}
	for _, info := range target {
		o, ok := info.Object.(*unstructured.Unstructured)
		if !ok {
			return result, fmt.Errorf("%s is not an unstructured object", info.Name)
		}
		request.Objects = append(request.Objects, o)
		byRef[withoutVersion(refOf(info))] = info
	}
	for _, info := range original {
		request.Previous = append(request.Previous, refOf(info).Entry())
	}
	err := c.applyUntilDone(request, byRef, result)
	if err != nil {
		return result, err
	}
	return result, c.deleteRemoved(original.Difference(target), result)
}

// applyUntilDone applies the request, and continues while it waits for the cluster.
func (c *Client) applyUntilDone(request apply.Request, byRef map[apply.Ref]*resource.Info,
	result *helmkube.Result) error {
	ctx, cancel := context.WithTimeout(c.ctx, c.Timeout)
	defer cancel()
	for {
		done, err := c.Target.Cluster.Apply(ctx, request)
		c.addChanges(done, byRef, result)
		if !apply.IsWaiting(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(waitRetry):
		}
	}
}

func (c *Client) addChanges(done *apply.Result, byRef map[apply.Ref]*resource.Info, result *helmkube.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, change := range rollout.Effective(done.Changes) {
		c.changes = append(c.changes, change)
		info := byRef[withoutVersion(change.Ref)]
		if info == nil {
			continue
		}
		if change.Action == apply.Created {
			result.Created = append(result.Created, info)
		} else {
			result.Updated = append(result.Updated, info)
		}
		c.versions[targetOf(info)] = change.ResourceVersion
	}
	c.warnings = append(c.warnings, done.Warnings...)
}

// deleteRemoved deletes objects that are no longer part of the release, unless their resource policy keeps them or they
// belong to another release by now.
func (c *Client) deleteRemoved(list helmkube.ResourceList, result *helmkube.Result) error {
	for _, info := range list {
		live, err := resource.NewHelper(info.Client, info.Mapping).Get(info.Namespace, info.Name)
		if apierrors.IsNotFound(err) {
			if c.isGone(info.Mapping.GroupVersionKind) { // what the mapper knows is older
				c.warnGone(info.Mapping.GroupVersionKind, info.Name)
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot read %s, which is no longer part of the release: %w", refOf(info), err)
		}
		o, err := meta.Accessor(live)
		if err != nil {
			return err
		}
		annotations := o.GetAnnotations()
		other := annotations[releaseNameAnnotation]
		if annotations[helmkube.ResourcePolicyAnno] == helmkube.KeepPolicy || other != "" && other != c.ReleaseName {
			continue
		}
		policy, uid := metav1.DeletePropagationBackground, o.GetUID()
		_, err = resource.NewHelper(info.Client, info.Mapping).DeleteWithOptions(info.Namespace, info.Name,
			&metav1.DeleteOptions{PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: &uid}})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("cannot delete %s, which is no longer part of the release: %w", refOf(info), err)
		}
		result.Deleted = append(result.Deleted, info)
		c.mu.Lock()
		c.changes = append(c.changes, apply.Change{Ref: refOf(info), Action: apply.Deleted})
		c.mu.Unlock()
	}
	return nil
}

func refOf(info *resource.Info) apply.Ref {
	gvk := info.Mapping.GroupVersionKind
	return apply.Ref{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Namespace: info.Namespace, Name: info.Name}
}

func withoutVersion(r apply.Ref) apply.Ref {
	r.Version = ""
	return r
}

func targetOf(info *resource.Info) health.Target { return health.Target(refOf(info)) }
