package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/offline/lookup"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// What packages below the commands use, too.
var (
	Explain  = lookup.Explain
	WithHint = lookup.WithHint
	Get      = lookup.Get
	NotFound = lookup.NotFound
)

// ErrNotInstalled is the cause of errors about kinds that the cluster does not serve.
var ErrNotInstalled = errors.New("kind not installed")

// notInstalled is an error that wraps ErrNotInstalled without showing it.
type notInstalled struct{ error }

func (notInstalled) Unwrap() error { return ErrNotInstalled }

// List returns the objects of a kind. The error wraps ErrNotInstalled if the cluster does not serve the kind.
func List(ctx context.Context, c client.Reader, k *kind.Kind,
	options ...client.ListOption) ([]reconcile.Object, error) {
	list := k.NewList()
	if err := c.List(ctx, list, options...); err != nil {
		explained := Explain("cannot list "+k.Name()+" objects", err)
		if apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			return nil, notInstalled{explained}
		}
		return nil, explained
	}
	raw, err := apimeta.ExtractList(list)
	if err != nil {
		return nil, err
	}
	var objects []reconcile.Object
	for _, r := range raw {
		o, ok := r.(reconcile.Object)
		if !ok {
			return nil, fmt.Errorf("unexpected type %T in a list of %s objects", r, k.Name())
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// Action is what Put did.
type Action string

// Actions of Put.
const (
	Created    Action = "created"
	Configured Action = "configured"
	Unchanged  Action = "unchanged"
)

// Put creates an object, or updates the existing one: it replaces everything except metadata and status, and adds
// labels.
func Put(ctx context.Context, c client.Client, want *unstructured.Unstructured) (Action, error) {
	var action Action
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(want.GroupVersionKind())
		err := c.Get(ctx, client.ObjectKeyFromObject(want), live)
		if apierrors.IsNotFound(err) {
			action = Created
			return c.Create(ctx, want.DeepCopy())
		}
		if err != nil {
			return err
		}
		before := live.GetResourceVersion()
		overwrite(live, want)
		err = c.Update(ctx, live)
		action = Configured
		if live.GetResourceVersion() == before {
			action = Unchanged
		}
		return err
	})
	what := fmt.Sprintf("%s '%s'", want.GetKind(), FullName(want))
	var status *apierrors.StatusError
	switch {
	case errors.As(err, &status) && apierrors.IsInvalid(err):
		return "", fmt.Errorf("the cluster rejected %s: %s", what, causes(status))
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("namespace '%s' not found. Create it, or choose another with -n", want.GetNamespace())
	case err != nil:
		return "", Explain("cannot store "+what, err)
	}
	return action, nil
}

// FullName returns namespace/name of an object, or its name if it has no namespace.
func FullName(o client.Object) string {
	if o.GetNamespace() == "" {
		return o.GetName()
	}
	return o.GetNamespace() + "/" + o.GetName()
}

// overwrite copies all fields of want to live, except metadata and status. It adds labels. Fields that want does not
// have stay: the image pull secrets of a ServiceAccount, for example, are of someone else. Only the data of a Secret is
// replaced as a whole, so that no old login remains in it.
func overwrite(live, want *unstructured.Unstructured) {
	kept := []string{"apiVersion", "kind", "metadata", "status"}
	if live.GetKind() == "Secret" {
		delete(live.Object, "data")
	}
	for key, value := range want.Object {
		if !slices.Contains(kept, key) {
			live.Object[key] = value
		}
	}
	labels := map[string]string{}
	maps.Copy(labels, live.GetLabels())
	maps.Copy(labels, want.GetLabels())
	if len(labels) > 0 {
		live.SetLabels(labels)
	}
}

// causes lists the invalid fields of a rejected object.
func causes(err *apierrors.StatusError) string {
	if err.ErrStatus.Details == nil || len(err.ErrStatus.Details.Causes) == 0 {
		return err.Error()
	}
	var lines []string
	for _, c := range err.ErrStatus.Details.Causes {
		lines = append(lines, strings.TrimSpace(c.Field+": "+c.Message))
	}
	return strings.Join(lines, "; ")
}

// deletedInterval is how often WaitDeleted reads the object.
const deletedInterval = 200 * time.Millisecond

// WaitDeleted waits until a deleted object no longer exists, or another one of its name does.
func WaitDeleted(ctx context.Context, c client.Reader, o client.Object) error {
	key, uid := client.ObjectKeyFromObject(o), o.GetUID()
	return wait.PollUntilContextCancel(ctx, deletedInterval, true, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, key, o)
		return apierrors.IsNotFound(err) || uid != "" && o.GetUID() != uid, client.IgnoreNotFound(err)
	})
}

// Username returns the name of the user that the API server sees.
func (c *Connection) Username(ctx context.Context) (string, error) {
	user, err := c.User(ctx)
	return user.Username, err
}

// User returns the user that the API server sees.
func (c *Connection) User(ctx context.Context) (authenticationv1.UserInfo, error) {
	cfg, err := c.Config()
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	k, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	review, err := k.AuthenticationV1().SelfSubjectReviews().
		Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, Explain("cannot determine your username", err)
	}
	return review.Status.UserInfo, nil
}
