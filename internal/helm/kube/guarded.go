package kube

import (
	"bytes"
	"errors"
	"io"
	"time"

	helmkube "helm.sh/helm/v4/pkg/kube"
	release "helm.sh/helm/v4/pkg/release/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/limits/yamlsize"
)

// maxManifests limits what Helm's actions read of one stream of manifests.
const maxManifests = 256 << 20

// Guarded returns the client for Helm's actions. They call it in goroutines of their own, where a panic would end the
// process of all tenants: each call turns a panic into an error.
func (c *Client) Guarded() helmkube.Interface { return guarded{c} }

type guarded struct{ client *Client }

var (
	_ helmkube.Interface            = guarded{}
	_ helmkube.InterfaceWaitOptions = guarded{}
)

// call calls f and turns a panic into an error.
func call[T any](c *Client, work string, f func() (T, error)) (out T, err error) {
	err = guard.DoContext(c.ctx, work, func() (err error) {
		out, err = f()
		return err
	})
	return out, err
}

// IsReachable implements [helmkube.Interface].
func (g guarded) IsReachable() error { return g.client.isReachable() }

// Create implements [helmkube.Interface].
func (g guarded) Create(list helmkube.ResourceList, _ ...helmkube.ClientCreateOption) (*helmkube.Result, error) {
	return call(g.client, "creating the objects of a release", func() (*helmkube.Result, error) {
		return g.client.create(list)
	})
}

// Update implements [helmkube.Interface]. Helm reads the result even after an error.
func (g guarded) Update(original, target helmkube.ResourceList,
	options ...helmkube.ClientUpdateOption) (*helmkube.Result, error) {
	result, err := call(g.client, "applying the objects of a release", func() (*helmkube.Result, error) {
		return g.client.update(original, target, options...)
	})
	if result == nil {
		result = &helmkube.Result{}
	}
	return result, err
}

// Delete implements [helmkube.Interface].
func (g guarded) Delete(list helmkube.ResourceList, policy metav1.DeletionPropagation) (*helmkube.Result, []error) {
	if g.client.IsDeferred() {
		return &helmkube.Result{}, nil // nothing failed yet
	}
	result, err := call(g.client, "deleting the objects of a release", func() (*helmkube.Result, error) {
		return g.client.delete(list, policy)
	})
	if err != nil {
		return result, []error{err}
	}
	return result, nil
}

// Build implements [helmkube.Interface].
func (g guarded) Build(reader io.Reader, _ bool) (helmkube.ResourceList, error) {
	return call(g.client, "reading the manifests of a release", func() (helmkube.ResourceList, error) {
		b, err := io.ReadAll(io.LimitReader(reader, maxManifests+1))
		if err == nil && len(b) > maxManifests {
			err = errors.New("the manifests are too large")
		}
		if err == nil && bytes.Contains(b, []byte(release.HookOutputLogAnnotation)) {
			// Helm parses such a hook once more, by this library: what it cannot parse must fail here.
			err = yamlsize.Unmarshal(b, &struct{ Metadata struct{ Namespace string } }{})
		}
		if err != nil {
			return nil, err
		}
		return g.client.Build(string(b))
	})
}

// BuildTable implements [helmkube.Interface].
func (g guarded) BuildTable(reader io.Reader, validate bool) (helmkube.ResourceList, error) {
	return g.Build(reader, validate)
}

// GetWaiter implements [helmkube.Interface]. Options decide what is waited for, not the strategy.
func (g guarded) GetWaiter(helmkube.WaitStrategy) (helmkube.Waiter, error) {
	return guardedWaiter{waiter{g.client}}, nil
}

// GetWaiterWithOptions implements [helmkube.InterfaceWaitOptions].
func (g guarded) GetWaiterWithOptions(s helmkube.WaitStrategy, _ ...helmkube.WaitOption) (helmkube.Waiter, error) {
	return g.GetWaiter(s)
}

// Get implements [helmkube.Interface]. The actions that the controller runs do not use it.
func (g guarded) Get(helmkube.ResourceList, bool) (map[string][]runtime.Object, error) {
	return nil, errors.ErrUnsupported
}

// GetPodList implements [helmkube.Interface]. Nothing reads the logs that a hook asks Helm to print; the error of a
// failed hook quotes its last lines.
func (g guarded) GetPodList(string, metav1.ListOptions) (*corev1.PodList, error) {
	return &corev1.PodList{}, nil
}

// OutputContainerLogsForPodList implements [helmkube.Interface]. See [guarded.GetPodList].
func (g guarded) OutputContainerLogsForPodList(*corev1.PodList, string,
	func(namespace, pod, container string) io.Writer) error {
	return nil
}

// guardedWaiter implements [helmkube.Waiter].
type guardedWaiter struct{ waiter waiter }

func (g guardedWaiter) wait(f func(helmkube.ResourceList, time.Duration) error, list helmkube.ResourceList,
	timeout time.Duration) error {
	return guard.DoContext(g.waiter.ctx, "waiting for the objects of a release", func() error {
		return f(list, timeout)
	})
}

// Wait implements [helmkube.Waiter].
func (g guardedWaiter) Wait(list helmkube.ResourceList, timeout time.Duration) error {
	return g.wait(g.waiter.Wait, list, timeout)
}

// WaitWithJobs implements [helmkube.Waiter].
func (g guardedWaiter) WaitWithJobs(list helmkube.ResourceList, timeout time.Duration) error {
	return g.wait(g.waiter.WaitWithJobs, list, timeout)
}

// WaitForDelete implements [helmkube.Waiter].
func (g guardedWaiter) WaitForDelete(list helmkube.ResourceList, timeout time.Duration) error {
	return g.wait(g.waiter.WaitForDelete, list, timeout)
}

// WatchUntilReady implements [helmkube.Waiter].
func (g guardedWaiter) WatchUntilReady(list helmkube.ResourceList, timeout time.Duration) error {
	return g.wait(g.waiter.WatchUntilReady, list, timeout)
}
