package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-gitops/sluice/internal/cli/migrate"
	"github.com/sluice-gitops/sluice/internal/cluster/health"
)

// inspectInterval is how often the reason is read why a Deployment is not available yet.
const inspectInterval = time.Second

// wait waits until all definitions are served and all Deployments are available.
func (i *installer) wait(ctx context.Context) error {
	var targets []health.Target
	for _, u := range i.objects {
		if u.GetKind() == deploymentKind || u.GetKind() == definitionKind {
			targets = append(targets, health.Target(refOf(u)))
		}
	}
	w := &waiter{installer: i, since: time.Now(), changed: make(chan struct{}, 1), warned: map[string]bool{}}
	w.watcher = health.NewWatcher(i.Dynamic(), i.Mapper(), func(string) {
		select {
		case w.changed <- struct{}{}:
		default:
		}
	})
	defer w.watcher.Close()
	w.watcher.SetTargets(ownName, targets)
	if err := w.healthy(ctx); err != nil {
		return err
	}
	if err := i.served(ctx); err != nil {
		return err
	}
	for _, t := range targets {
		if t.Kind == deploymentKind {
			i.Done("%s is available", t)
		}
	}
	return nil
}

// waiter waits for the health of objects.
type waiter struct {
	*installer
	since   time.Time
	watcher *health.Watcher
	changed chan struct{}
	warned  map[string]bool
}

// healthy returns when all targets are healthy, or one cannot become so.
func (w *waiter) healthy(ctx context.Context) error {
	tick := time.NewTicker(inspectInterval)
	defer tick.Stop()
	for {
		results, synced := w.watcher.Results(ownName)
		pending := slices.DeleteFunc(results, func(r health.Result) bool { return r.Status == health.Current })
		if synced && len(pending) == 0 {
			return nil
		}
		failed := slices.ContainsFunc(pending, func(r health.Result) bool { return r.Status == health.Failed })
		if synced && failed {
			return w.explain(context.WithoutCancel(ctx), pending)
		}
		select {
		case <-ctx.Done():
			if !timedOut(ctx) {
				return ctx.Err()
			}
			return w.explain(context.WithoutCancel(ctx), pending)
		case <-w.changed:
		case <-tick.C:
			w.inspect(ctx, pending)
		}
	}
}

// inspect shows what is waited for. It warns once about each reason that a person must resolve.
func (w *waiter) inspect(ctx context.Context, pending []health.Result) {
	for _, r := range pending {
		message := w.watcher.Explain(ctx, r)
		hint := w.hint(r.Target, message)
		if key := r.Target.String() + hint; hint != "" && !w.warned[key] {
			w.warned[key] = true
			w.Warn("%s is not available yet: %s. %s", r.Target, message, hint)
		}
		w.Live("waiting for %s: %s", r.Target, message)
	}
}

// explainTimeout bounds the requests that explain a failure.
const explainTimeout = 10 * time.Second

// explain returns the error of an installation that did not become healthy.
func (w *waiter) explain(ctx context.Context, pending []health.Result) error {
	ctx, cancel := context.WithTimeout(ctx, explainTimeout)
	defer cancel()
	after := time.Since(w.since).Round(time.Second) // less than the timeout if an object cannot become healthy
	var problems []error
	for _, r := range pending {
		message := w.watcher.Explain(ctx, r)
		hint := cmp.Or(w.hint(r.Target, message), timeoutHint(r.Target))
		problems = append(problems, fmt.Errorf("%s is not available after %s: %s. %s", r.Target, after, message, hint))
	}
	return unavailableError{errors.Join(problems...)}
}

// timeoutHint is the hint if no reason is known why a Deployment is not available.
func timeoutHint(t health.Target) string {
	return fmt.Sprintf("Raise --timeout, or run kubectl -n %s describe %s %s", t.Namespace, strings.ToLower(t.Kind),
		t.Name)
}

// unavailableError is the error of Deployments that did not become available in time.
type unavailableError struct{ error }

func (e unavailableError) Unwrap() error { return e.error }

func isUnavailable(err error) bool { return errors.As(err, &unavailableError{}) }

// hint returns what to do about the reason why a Deployment is not available, or "" if it may just need time.
func (i *installer) hint(t health.Target, message string) string {
	for _, c := range []struct {
		reasons []string
		hint    string
	}{
		{reasons: []string{"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull"},
			hint: fmt.Sprintf("The nodes cannot pull image %s: check --registry, --version, --image-pull-secret and "+
				"--registry-creds", i.ImageReference())},
		{reasons: []string{"CrashLoopBackOff"},
			hint: fmt.Sprintf("Read why the process ended: kubectl -n %s logs deployment/%s --previous", t.Namespace,
				t.Name)},
		{reasons: []string{"Unschedulable"},
			hint: "No node takes the pod: add a node, free capacity, or set --toleration-keys"},
		{reasons: []string{"exceeded quota"},
			hint: "Raise the ResourceQuota of namespace '" + t.Namespace + "', or free objects"},
		{reasons: []string{"violates PodSecurity", "denied the request", "failed calling webhook"},
			hint: "An admission check of the cluster refuses the pod: exempt namespace '" + t.Namespace + "' from it"},
		{reasons: []string{"FailedCreate"}, hint: "The cluster refuses the pod: correct what the message names"},
		{reasons: []string{"CreateContainerConfigError", "CreateContainerError", "FailedMount"},
			hint: fmt.Sprintf("The node cannot start the container: kubectl -n %s describe pod -l app=%s",
				t.Namespace, t.Name)},
	} {
		if slices.ContainsFunc(c.reasons, func(r string) bool { return strings.Contains(message, r) }) {
			return c.hint
		}
	}
	return ""
}

// served returns when the API server lists all served versions of the definitions in its discovery.
func (i *installer) served(ctx context.Context) error {
	tick := time.NewTicker(inspectInterval / 4)
	defer tick.Stop()
	for {
		missing := ""
		for _, u := range i.objects {
			if u.GetKind() != definitionKind {
				continue
			}
			name, err := i.unserved(u)
			if err != nil {
				return fmt.Errorf("cannot read what the cluster serves: %w", err)
			}
			if name != "" {
				missing = name
			}
		}
		if missing == "" {
			return nil
		}
		i.Live("waiting for the cluster to serve %s", missing)
		select {
		case <-ctx.Done():
			return fmt.Errorf("the cluster does not serve %s after %s. Raise --timeout, or look at the log of the API "+
				"server", missing, i.Timeout)
		case <-tick.C:
		}
	}
}

// unserved returns a version of a definition that the cluster does not serve, or "".
func (i *installer) unserved(u *unstructured.Unstructured) (string, error) {
	d := migrate.ParseCRD(u)
	for _, v := range d.Versions {
		if !v.Served {
			continue
		}
		list, err := i.Kubernetes.Discovery().ServerResourcesForGroupVersion(d.Group + "/" + v.Name)
		if apierrors.IsNotFound(err) {
			return d.Plural + "." + d.Group + "/" + v.Name, nil
		}
		if err != nil {
			return "", err
		}
		found := false
		for _, r := range list.APIResources {
			found = found || r.Name == d.Plural
		}
		if !found {
			return d.Plural + "." + d.Group + "/" + v.Name, nil
		}
	}
	return "", nil
}
