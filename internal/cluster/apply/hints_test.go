package apply

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sluice-gitops/sluice/internal/text/fault"
)

var (
	ofKustomization = Owner{Group: "kustomize.toolkit.fluxcd.io", Namespace: "apps", Name: "web"}
	ofRelease       = Owner{Group: "helm.toolkit.fluxcd.io", Namespace: "apps", Name: "web"}
	ofInstallation  = Owner{Group: "app.kubernetes.io", Namespace: "sluice-system", Name: "sluice"}
)

func forbidden(text string) *apierrors.StatusError {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web", errors.New(text))
}

func TestHintsOfClusters(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	problems := each(ended, 1, []int{0}, func(ctx context.Context, _ int) error {
		cancel()
		return ctx.Err()
	})
	for want, err := range map[string]error{
		"If the cluster is slow, raise spec.timeout, or --timeout of the command": problems[len(problems)-1],
		"The cluster does not accept the credentials: they may have expired, or the audience of a token may not be " +
			"an audience of the cluster": discoveryFailed(apierrors.NewUnauthorized("expired")),
		"The other objects are applied when the cluster responds again": unreachable(&net.OpError{Op: "dial",
			Err: errors.New("connection refused")}),
	} {
		if f := fault.As(err); f == nil || f.Hint != want {
			t.Errorf("got %v, want the hint %q", err, want)
		}
	}
}

func TestHintOfEveryRefusalFitsItsCause(t *testing.T) {
	status := func(code int32, reason metav1.StatusReason, text string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason,
			Message: text}}
	}
	terminating := forbidden("namespace apps is being terminated")
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	missingRight := forbidden(`User "u" cannot patch resource "pods" in API group "" in the namespace "apps"`)
	immutable := status(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "spec.selector: field is immutable")
	namespaceMissing := apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "apps")
	for name, c := range map[string]struct {
		err   error
		owner Owner
		want  string
	}{
		"webhook without answer": {want: "The admission webhook did not respond, and its failurePolicy rejects the " +
			"object then. Check the service of the webhook, or change the failurePolicy",
			err: apierrors.NewInternalError(errors.New(`failed calling webhook "w.io": connection refused`))},
		"policy whose message has a word of immutable fields": {
			want: "An admission rule of the cluster rejects the object. Change the object, or the rule",
			err: status(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid,
				"ValidatingAdmissionPolicy 'p' with binding 'b' denied request: tags must be immutable")},
		"namespace being deleted": {err: terminating,
			want: "Wait until the namespace is deleted; its conditions name " +
				"what blocks the deletion. To keep the namespace, declare it here: it is then created again"},
		"namespace missing": {err: namespaceMissing,
			want: "Declare the Namespace, or add a dependsOn on the Kustomization that creates it"},
		"namespace missing, release": {err: namespaceMissing, owner: ofRelease,
			want: "Create the Namespace; spec.install.createNamespace creates that of the release"},
		"namespace missing, installation": {err: namespaceMissing, owner: ofInstallation,
			want: "Create the Namespace, and run the command again"},
		"immutable field": {err: immutable, want: "The field is immutable. Set spec.force, or the annotation " +
			"kustomize.toolkit.fluxcd.io/force: enabled on the object, to delete and create it again; or undo the " +
			"change"},
		"immutable field, release": {err: immutable, owner: ofRelease, want: "The field is immutable. Set " +
			"spec.upgrade.force, or the annotation helm.toolkit.fluxcd.io/force: enabled on the object, to delete " +
			"and create it again; or undo the change"},
		"immutable field, installation": {err: immutable, owner: ofInstallation,
			want: "The field is immutable. Delete the object, and run the command again"},
		"kind removed": {err: status(http.StatusNotFound, metav1.StatusReasonNotFound,
			"the server could not find the requested resource"),
			want: "The cluster no longer serves the kind: its CustomResourceDefinition was removed. Install it " +
				"again, or remove the object"},
		"missing right, release": {err: missingRight, owner: ofRelease, want: "Grant the right to the account that " +
			"applies, or set spec.serviceAccountName to an account that has it"},
		"missing right, installation": {err: missingRight, owner: ofInstallation,
			want: "Use an account that has this right, with --context or --as"},
		"invalid object": {err: status(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "spec.x: "+
			"Required value")},
	} {
		if c.owner == (Owner{}) {
			c.owner = ofKustomization
		}
		if got := refusalHint(c.err, "apps", c.owner); !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: got hint %q, want %q", name, got, c.want)
		}
	}
}

func TestHintOfStatusForbiddenFitsTheAdmissionPlugin(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"webhook": {want: "An admission rule of the cluster rejects the object. Change the object, or the rule",
			text: `admission webhook "w.io" denied the request: no label team`},
		"missing right": {text: `User "u" cannot patch resource "pods" in API group "" in the namespace "apps"`,
			want: "Grant the right to the account that applies, or set spec.serviceAccountName to an account that " +
				"has it"},
		"escalation": {text: `user "u" is attempting to grant RBAC permissions not currently held:`,
			want: "Grant the right to the account that applies, or set spec.serviceAccountName to an account that " +
				"has it"},
		"quota used up": {want: "ResourceQuota 'small' is exhausted. Raise it, or delete other objects",
			text: "exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1"},
		"quota without request": {text: "failed quota: small: must specify limits.cpu for: app",
			want: "ResourceQuota 'small' requires these requests and limits: set them on all containers, or give " +
				"them defaults with a LimitRange"},
		"limit range": {text: "maximum cpu usage per Container is 1, but limit is 2",
			want: "Change the requests and limits of the containers, or the LimitRange of the namespace"},
		"no service account": {want: "Create ServiceAccount 'apps/web', or correct serviceAccountName of the pod",
			text: `error looking up service account apps/web: serviceaccount "web" not found`},
		"no priority class": {text: "no PriorityClass with name high was found",
			want: "Create PriorityClass 'high', or correct priorityClassName of the pod"},
		"pod security": {text: `violates PodSecurity "restricted:latest": runAsNonRoot != true`,
			want: "Change the pod template, or the Pod Security level of the namespace"},
		"another admission plugin": {text: "cannot set blockOwnerDeletion in this case",
			want: "An admission plugin of the API server refuses the object. Change the object as the message says"},
	} {
		if got := refusalHint(forbidden(c.text), "apps", ofKustomization); got != c.want {
			t.Errorf("%s: got hint %q, want %q", name, got, c.want)
		}
	}
}

func TestDefinitionIsInstalledTheWayOfTheOwner(t *testing.T) {
	for owner, want := range map[Owner]string{
		ofKustomization: "Install its CustomResourceDefinition first: declare it here, or add a dependsOn on the " +
			"Kustomization that installs it",
		ofRelease: "Install its CustomResourceDefinition first: add it to the chart, or add a dependsOn on the " +
			"HelmRelease that installs it",
		ofInstallation: "Install its CustomResourceDefinition first, and run the command again",
	} {
		if got := adviceFor(owner).definition; got != want {
			t.Errorf("%s: got hint %q, want %q", owner.Group, got, want)
		}
	}
}
