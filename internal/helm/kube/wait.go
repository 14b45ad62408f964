package kube

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	helmkube "helm.sh/helm/v4/pkg/kube"
	release "helm.sh/helm/v4/pkg/release/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/utils/ptr"

	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/cluster/health"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// Bounds of the logs that an error quotes.
const (
	logTimeout  = 15 * time.Second
	maxLogLines = 10
	maxLogBytes = 2 << 10
	maxLogPods  = 3
)

// legacyKinds are the kinds whose health Helm 3 waited for.
var legacyKinds = map[schema.GroupKind]bool{
	{Kind: "Pod"}: true, {Kind: "PersistentVolumeClaim"}: true, {Kind: "Service"}: true,
	{Kind: "ReplicationController"}: true, {Group: "apps", Kind: "Deployment"}: true,
	{Group: "apps", Kind: "StatefulSet"}: true, {Group: "apps", Kind: "DaemonSet"}: true,
	{Group: "apps", Kind: "ReplicaSet"}: true, {Group: "batch", Kind: "Job"}: true,
	{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}: true,
}

var (
	jobKind = schema.GroupKind{Group: "batch", Kind: "Job"}
	podKind = schema.GroupKind{Kind: "Pod"}
)

// hookChecks define when a hook is done: kstatus calls a Pod current that runs.
var hookChecks = func() []*health.Check {
	pod, err := health.NewCheck("v1", "Pod", "status.phase == 'Succeeded'", "", "status.phase == 'Failed'")
	if err != nil {
		panic(err) // the expressions are constants
	}
	return []*health.Check{pod}
}()

// waiter implements [helmkube.Waiter] with health watches.
type waiter struct{ *Client }

// Wait waits until the objects are healthy, Jobs excepted.
func (w waiter) Wait(list helmkube.ResourceList, timeout time.Duration) error {
	return w.waitHealthy(list.Filter(isNoJob), timeout)
}

func isNoJob(i *resource.Info) bool { return i.Mapping.GroupVersionKind.GroupKind() != jobKind }

// WaitWithJobs waits until the objects are healthy and Jobs are complete.
func (w waiter) WaitWithJobs(list helmkube.ResourceList, timeout time.Duration) error {
	return w.waitHealthy(list, timeout)
}

func (w waiter) waitHealthy(list helmkube.ResourceList, timeout time.Duration) error {
	if w.NoWait {
		return nil
	}
	wait := w.waitFor(list)
	wait.Timeout = timeout
	if w.Defer == nil || timeout <= deferAfter {
		return w.Target.WaitHealthy(w.ctx, wait)
	}
	wait.Timeout, wait.Later = deferAfter, true
	err := w.Target.WaitHealthy(w.ctx, wait)
	if !errors.Is(err, rollout.ErrUnhealthyYet) {
		return err
	}
	isDeferred, deferErr := w.Defer()
	if deferErr != nil || !isDeferred {
		wait.Timeout, wait.Later = timeout-deferAfter, false
		return errors.Join(deferErr, w.Target.WaitHealthy(w.ctx, wait))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deferred = true
	return err
}

// IsDeferred reports whether the wait for the health of objects is left to a later pass.
func (c *Client) IsDeferred() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deferred
}

// WaitFor returns the wait for the objects of a manifest, for a later pass.
func (c *Client) WaitFor(manifest string, withJobs bool) (rollout.Wait, error) {
	list, err := c.Build(manifest)
	if !withJobs {
		list = list.Filter(isNoJob)
	}
	return waiter{c}.waitFor(list), err
}

func (w waiter) waitFor(list helmkube.ResourceList) rollout.Wait {
	wait := rollout.Wait{Owner: w.Owner, Checks: w.Checks, Versions: w.versions, NoFailFast: w.NoFailFast,
		HasTTL: map[health.Target]bool{}}
	for _, info := range list {
		if w.Legacy && !legacyKinds[info.Mapping.GroupVersionKind.GroupKind()] {
			continue
		}
		target := targetOf(info)
		wait.Targets = append(wait.Targets, target)
		if o, ok := info.Object.(*unstructured.Unstructured); ok && apply.HasTTL(o) {
			target.Version = ""
			wait.HasTTL[target] = true
		}
	}
	return wait
}

// WaitForDelete waits until the objects do not exist.
func (w waiter) WaitForDelete(list helmkube.ResourceList, timeout time.Duration) error {
	wait := rollout.Wait{Owner: w.Owner, Timeout: timeout}
	for _, info := range list {
		wait.Targets = append(wait.Targets, targetOf(info))
	}
	if w.NoWait && !isHook(list) { // a hook can only be created again after it is gone
		return nil
	}
	return w.Target.WaitDeleted(w.ctx, wait)
}

func isHook(list helmkube.ResourceList) bool {
	for _, info := range list {
		o, err := meta.Accessor(info.Object)
		if err == nil && o.GetAnnotations()[release.HookAnnotation] != "" {
			return true
		}
	}
	return false
}

// WatchUntilReady waits until the Jobs and Pods of a hook are done. Its error quotes their last log lines.
func (w waiter) WatchUntilReady(list helmkube.ResourceList, timeout time.Duration) error {
	wait := rollout.Wait{Owner: w.Owner, Checks: hookChecks, Timeout: timeout}
	var runs helmkube.ResourceList
	for _, info := range list {
		switch info.Mapping.GroupVersionKind.GroupKind() {
		case jobKind, podKind:
			runs = append(runs, info)
			wait.Targets = append(wait.Targets, targetOf(info))
		}
	}
	err := w.Target.WaitHealthy(w.ctx, wait)
	w.Target.Forget(w.Owner) // the health of a hook that ended does not change
	if err == nil || w.ctx.Err() != nil {
		return err
	}
	if logs := w.lastLogs(runs); logs != "" {
		return fmt.Errorf("%w\n%s", err, logs)
	}
	return err
}

// lastLogs returns the last log lines of Jobs and Pods.
func (w waiter) lastLogs(list helmkube.ResourceList) string {
	ctx, cancel := context.WithTimeout(w.ctx, logTimeout)
	defer cancel()
	var texts []string
	for _, info := range list {
		options := metav1.ListOptions{LabelSelector: "job-name=" + info.Name, Limit: maxLogPods}
		if info.Mapping.GroupVersionKind.Kind == "Pod" {
			options = metav1.ListOptions{FieldSelector: "metadata.name=" + info.Name}
		}
		pods, err := w.typed.CoreV1().Pods(info.Namespace).List(ctx, options)
		if err != nil {
			continue // the account may not read pods
		}
		for _, pod := range pods.Items {
			for _, container := range pod.Spec.Containers {
				if text := w.tail(ctx, pod, container.Name); text != "" {
					texts = append(texts, fmt.Sprintf("last log lines of pod '%s', container '%s':\n%s", pod.Name,
						container.Name, text))
				}
			}
		}
	}
	return strings.Join(texts, "\n")
}

func (w waiter) tail(ctx context.Context, pod corev1.Pod, container string) string {
	stream, err := w.typed.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: container,
		TailLines: ptr.To(int64(maxLogLines)), LimitBytes: ptr.To(int64(maxLogBytes))}).Stream(ctx)
	if err != nil {
		return ""
	}
	defer stream.Close() // its error does not matter: the logs are only a hint
	var lines []string
	for scanner := bufio.NewScanner(stream); scanner.Scan(); {
		lines = append(lines, "  "+scanner.Text())
	}
	return excerpt.Bytes(strings.Join(lines, "\n"), maxLogBytes)
}
