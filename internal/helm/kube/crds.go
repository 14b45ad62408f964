package kube

import (
	"bytes"
	"fmt"
	"time"

	chart "helm.sh/helm/v4/pkg/chart/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/cluster/health"
	"github.com/sluice-gitops/sluice/internal/limits/yamlsize"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// ApplyCRDs creates the objects of the crds directory of a chart, or updates them, as the policy says, and waits until
// the definitions are established. It never deletes them.
func (c *Client) ApplyCRDs(crds []chart.CRD, policy string, timeout time.Duration) error {
	if policy == helmv2.CRDsSkip {
		return nil
	}
	wait := rollout.Wait{Owner: c.Owner, Timeout: timeout}
	for _, crd := range crds {
		targets, err := c.applyFile(crd, policy)
		if err != nil {
			return err
		}
		wait.Targets = append(wait.Targets, targets...)
	}
	if len(wait.Targets) == 0 {
		return nil
	}
	if err := c.Target.WaitHealthy(c.ctx, wait); err != nil {
		return err
	}
	c.Target.Cluster.Mapper().Reset()
	return nil
}

// applyFile applies the objects of a file.
func (c *Client) applyFile(crd chart.CRD, policy string) ([]health.Target, error) {
	if crd.File == nil {
		return nil, nil
	}
	lease, err := yamlsize.Acquire(c.ctx, "the definitions in file "+crd.Filename, crd.File.Data)
	if err != nil {
		return nil, err
	}
	defer lease.Release()
	objects, err := CRDObjects(crd)
	if err != nil {
		return nil, err
	}
	var targets []health.Target
	for _, o := range objects {
		target, err := c.applyCRD(o, policy)
		if err != nil {
			return nil, fmt.Errorf("cannot apply %s '%s' of file %s: %w", o.GetKind(), o.GetName(), crd.Filename, err)
		}
		targets = append(targets, target)
	}
	return targets, nil
}

// CRDObjects returns the objects of a file of the crds directory.
func CRDObjects(crd chart.CRD) ([]*unstructured.Unstructured, error) {
	if crd.File == nil {
		return nil, nil
	}
	objects, err := Decode(bytes.NewReader(crd.File.Data))
	if err != nil {
		return nil, fmt.Errorf("file %s: %w", crd.Filename, err)
	}
	return objects, nil
}

// applyCRD creates or applies one object.
func (c *Client) applyCRD(o *unstructured.Unstructured, policy string) (health.Target, error) {
	info, err := c.info(o)
	if err != nil {
		return health.Target{}, err
	}
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	for k, v := range rollout.OwnerOf(c.Owner).Labels() {
		labels[k] = v
	}
	o.SetLabels(labels)
	client := c.Target.Cluster.Dynamic().Resource(info.Mapping.Resource)
	action := apply.Created
	_, err = client.Namespace(info.Namespace).Create(c.ctx, o, metav1.CreateOptions{FieldManager: FieldManager})
	switch {
	case apierrors.IsAlreadyExists(err) && policy == helmv2.CRDsCreateReplace:
		action = apply.Configured
		_, err = client.Namespace(info.Namespace).Apply(c.ctx, o.GetName(), o,
			metav1.ApplyOptions{FieldManager: FieldManager, Force: true})
	case apierrors.IsAlreadyExists(err):
		return targetOf(info), nil
	}
	if err != nil {
		return health.Target{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes = append(c.changes, apply.Change{Ref: refOf(info), Action: action})
	return targetOf(info), nil
}
