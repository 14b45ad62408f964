package migrate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	maxListed            = 5 // objects that a message names
	defaultLeaseDuration = 35 * time.Second
)

// wait calls look until it returns no reason to wait, or until ReadyTimeout.
func (e *Engine) wait(ctx context.Context, what string, look func(context.Context) (string, error)) error {
	var last string
	deadline := e.Now().Add(e.ReadyTimeout)
	err := wait.PollUntilContextTimeout(ctx, e.PollInterval, e.ReadyTimeout, true,
		func(ctx context.Context) (bool, error) {
			reason, err := look(ctx)
			if err != nil && last != "" && (ctx.Err() != nil || !e.Now().Before(deadline) || isThrottled(err)) {
				return false, context.DeadlineExceeded // the request ended with the wait
			}
			if err != nil {
				return false, err
			}
			if last = reason; reason != "" {
				e.waiting("waiting for " + what + ": " + reason)
			}
			return reason == "", nil
		})
	if errors.Is(err, context.DeadlineExceeded) && last != "" {
		return fmt.Errorf("timeout after %s while waiting for %s: %s", e.ReadyTimeout, what, last)
	}
	return err
}

// isThrottled reports whether a request was not sent because it would end after the deadline of its context.
func isThrottled(err error) bool {
	return strings.Contains(err.Error(), "would exceed context deadline")
}

func summary(waiting []string) string {
	if len(waiting) == 0 {
		return ""
	}
	text := strings.Join(waiting[:min(len(waiting), maxListed)], "; ")
	if more := len(waiting) - maxListed; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// waitStopped waits until a Deployment has no Pods, and until no process holds its lease.
func (e *Engine) waitStopped(ctx context.Context, name, leasePrefix string) error {
	d := &appsv1.Deployment{}
	key := client.ObjectKey{Namespace: e.Namespace, Name: name}
	if err := e.Client.Get(ctx, key, d); err != nil {
		return fmt.Errorf("cannot get Deployment '%s': %w", key, err)
	}
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return fmt.Errorf("Deployment '%s' has an invalid selector: %w", key, err)
	}
	seen := map[string]seenLease{}
	return e.wait(ctx, "Deployment '"+key.String()+"' to stop", func(ctx context.Context) (string, error) {
		if err := e.Client.Get(ctx, key, d); err != nil {
			return "", err
		}
		if replicas(d) > 0 {
			return "",
				fmt.Errorf("Deployment '%s' was scaled up again. Something deploys it, such as a GitOps sync or an "+
					"autoscaler: stop that first", key)
		}
		pods := &corev1.PodList{}
		if err := e.Client.List(ctx, pods, client.InNamespace(e.Namespace),
			client.MatchingLabelsSelector{Selector: selector}); err != nil {
			return "", err
		}
		if n := len(pods.Items); n > 0 {
			return plural(n, "Pod") + " left", nil
		}
		return e.heldLease(ctx, leasePrefix, seen)
	})
}

// seenLease is the last renewal of a lease, and when this process saw it first. Clocks of other machines are not
// compared with ours.
type seenLease struct {
	renewed metav1.MicroTime
	at      time.Time
}

// heldLease returns which lease a process still holds; "" if none. Shards have leases with a suffix.
func (e *Engine) heldLease(ctx context.Context, prefix string, seen map[string]seenLease) (string, error) {
	leases := &coordinationv1.LeaseList{}
	if err := e.Client.List(ctx, leases, client.InNamespace(e.Namespace)); err != nil {
		return "", err
	}
	for _, l := range leases.Items {
		if !strings.HasPrefix(l.Name, prefix) || ptr.Deref(l.Spec.HolderIdentity, "") == "" {
			continue
		}
		renewed := ptr.Deref(l.Spec.RenewTime, metav1.MicroTime{})
		first, known := seen[l.Name]
		if !known || !first.renewed.Equal(&renewed) {
			first = seenLease{renewed: renewed, at: e.Now()}
			seen[l.Name] = first
		}
		valid := defaultLeaseDuration
		if seconds := ptr.Deref(l.Spec.LeaseDurationSeconds, 0); seconds > 0 {
			valid = time.Duration(seconds) * time.Second
		}
		if e.Now().Sub(first.at) < valid {
			return fmt.Sprintf("lease '%s' is held by %s", l.Name, *l.Spec.HolderIdentity), nil
		}
	}
	return "", nil
}

// waitAvailable waits until all replicas of a Deployment are available.
func (e *Engine) waitAvailable(ctx context.Context, name string) error {
	key := client.ObjectKey{Namespace: e.Namespace, Name: name}
	return e.wait(ctx, "Deployment '"+key.String()+"'", func(ctx context.Context) (string, error) {
		d := &appsv1.Deployment{}
		if err := e.Client.Get(ctx, key, d); err != nil {
			if apierrors.IsNotFound(err) {
				return "it does not exist yet", nil
			}
			return "", err
		}
		want := replicas(d)
		if d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas < want ||
			d.Status.AvailableReplicas < want {
			return fmt.Sprintf("%d of %d replicas are available", d.Status.AvailableReplicas, want), nil
		}
		return "", nil
	})
}
