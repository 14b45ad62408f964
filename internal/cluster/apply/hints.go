package apply

import (
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// advice says what to do about errors whose remedy depends on the kind of the owner.
type advice struct{ force, namespace, definition, right, duplicate, unspecified string }

// adviceFor returns the advice for an owner: a Kustomization, a HelmRelease or the command line.
func adviceFor(owner Owner) advice {
	annotation := "the annotation " + owner.Group + forceKey + ": enabled on the object"
	switch owner.Group {
	case "helm.toolkit.fluxcd.io":
		return advice{
			force: "Set spec.upgrade.force, or " + annotation +
				", to delete and create it again; or undo the change",
			namespace: "Create the Namespace; spec.install.createNamespace creates that of the release",
			definition: "Install its CustomResourceDefinition first: add it to the chart, or add a dependsOn on the " +
				"HelmRelease that installs it",
			right: "Grant the right to the account that applies, or set spec.serviceAccountName to an account that " +
				"has it",
			duplicate:   ". With serverSideApply off in spec.install and spec.upgrade, the last one counts",
			unspecified: "Set metadata.namespace",
		}
	case "app.kubernetes.io":
		return advice{
			force:       "Delete the object, and run the command again",
			namespace:   "Create the Namespace, and run the command again",
			definition:  "Install its CustomResourceDefinition first, and run the command again",
			right:       "Use an account that has this right, with --context or --as",
			unspecified: "Set metadata.namespace",
		}
	}
	a := advice{
		force:     "Set spec.force, or " + annotation + ", to delete and create it again; or undo the change",
		namespace: "Declare the Namespace, or add a dependsOn on the Kustomization that creates it",
		definition: "Install its CustomResourceDefinition first: declare it here, or add a dependsOn on the " +
			"Kustomization that installs it",
		right: "Grant the right to the account that applies, or set spec.serviceAccountName to an account that " +
			"has it",
		unspecified: "Set metadata.namespace, or spec.targetNamespace of the Kustomization",
	}
	if owner.Group == resourceSetGroup {
		a.force = "Set " + annotation + ", or on the ResourceSet, to delete and create it again; or undo the change"
		a.namespace = "Declare the Namespace, or add a dependsOn on the object that creates it"
		a.definition = "Install its CustomResourceDefinition first: declare it here, or add a dependsOn on it"
		a.unspecified = "Set metadata.namespace"
	}
	return a
}

// refusalHint returns what to do about an object that the API server refused, or "".
func refusalHint(err error, namespace string, owner Owner) string {
	switch {
	case webhookFailed(err):
		return "The admission webhook did not respond, and its failurePolicy rejects the object then. " +
			"Check the service of the webhook, or change the failurePolicy"
	case isAdmissionRule(err):
		return "An admission rule of the cluster rejects the object. Change the object, or the rule"
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return "Wait until the namespace is deleted; its conditions name what blocks the deletion. " +
			"To keep the namespace, declare it here: it is then created again"
	case strings.Contains(err.Error(), "duplicate entries for key"):
		return "Remove one of the entries of that name: server-side apply needs different names" +
			adviceFor(owner).duplicate
	case isImmutable(err):
		return "The field is immutable. " + adviceFor(owner).force
	case apierrors.IsForbidden(err):
		return forbiddenHint(err, owner)
	case namespaceMissing(err, namespace):
		return adviceFor(owner).namespace
	case isKindGone(err):
		return "The cluster no longer serves the kind: its CustomResourceDefinition was removed. Install it again, " +
			"or remove the object"
	}
	return ""
}

// isAdmissionRule reports whether a webhook or a policy of an administrator refused the object.
func isAdmissionRule(err error) bool {
	return strings.Contains(err.Error(), "admission webhook") ||
		strings.Contains(err.Error(), "ValidatingAdmissionPolicy '") && strings.Contains(err.Error(), "denied request")
}

var (
	exceededQuota = regexp.MustCompile(`exceeded quota: ([\w.-]+)`)
	failedQuota   = regexp.MustCompile(`failed quota: ([\w.-]+): must specify`)
	limitRange    = regexp.MustCompile(`(maximum|minimum) [\w./-]+ usage per |max limit to request ratio`)
	noAccount     = regexp.MustCompile(`error looking up service account ([\w./-]+):`)
	noPriority    = regexp.MustCompile(`no PriorityClass with name ([\w.-]+) was found`)
	rbac          = regexp.MustCompile(` cannot \w+ (resource|path) |attempting to grant RBAC permissions`)
)

// IsMissingRight reports whether the API server refused a request since RBAC does not allow it. Status 403 alone does
// not tell: admission uses it, too, and says itself what to do.
func IsMissingRight(err error) bool {
	return apierrors.IsForbidden(err) && rbac.MatchString(err.Error())
}

// forbiddenHint returns what to do about status 403, which the API server also uses for admission plugins.
func forbiddenHint(err error, owner Owner) string {
	text := err.Error()
	if m := exceededQuota.FindStringSubmatch(text); m != nil {
		return fmt.Sprintf("ResourceQuota '%s' is exhausted. Raise it, or delete other objects", m[1])
	}
	if m := failedQuota.FindStringSubmatch(text); m != nil {
		return fmt.Sprintf("ResourceQuota '%s' requires these requests and limits: set them on all containers, or "+
			"give them defaults with a LimitRange", m[1])
	}
	if m := noAccount.FindStringSubmatch(text); m != nil {
		return fmt.Sprintf("Create ServiceAccount '%s', or correct serviceAccountName of the pod", m[1])
	}
	if m := noPriority.FindStringSubmatch(text); m != nil {
		return fmt.Sprintf("Create PriorityClass '%s', or correct priorityClassName of the pod", m[1])
	}
	switch {
	case strings.Contains(text, "violates PodSecurity"):
		return "Change the pod template, or the Pod Security level of the namespace"
	case limitRange.MatchString(text):
		return "Change the requests and limits of the containers, or the LimitRange of the namespace"
	case IsMissingRight(err):
		return adviceFor(owner).right
	}
	return "An admission plugin of the API server refuses the object. Change the object as the message says"
}
