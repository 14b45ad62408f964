package apply

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/excerpt"
	"github.com/sluice-gitops/sluice/internal/fault"
)

const (
	maxNamed = 10  // how many problems one error tells in words
	maxWords = 600 // how many bytes of what the API server said one problem repeats
	maxValue = 120 // how long a refused value may be to be repeated
)

func problem(format string, args ...any) *fault.Fault {
	return fault.New(meta.ReconciliationFailedReason, format, args...)
}

// refused puts problems found before anything was written into one error.
func refused(problems []error) error {
	return join(problems, "%d objects refused, nothing was changed")
}

// failed puts problems of writing into one error.
func failed(problems []error) error { return join(problems, "%d objects could not be applied") }

// join tells what to do once where it is the same for several in a row.
func join(problems []error, title string) error {
	var texts, hints []string
	var first error
	told := map[string]bool{}
	for _, p := range problems {
		if p == nil {
			continue
		}
		if first == nil {
			first = p
		}
		if text := p.Error(); !told[text] {
			told[text] = true
			hint := ""
			if f := fault.As(p); f != nil && f.Hint != "" && strings.HasSuffix(text, ". "+f.Hint) {
				hint = ". " + f.Hint
			}
			texts, hints = append(texts, strings.TrimSuffix(text, hint)), append(hints, hint)
		}
	}
	if len(texts) <= 1 {
		return first
	}
	all := fmt.Sprintf(title, len(texts))
	more := len(texts) - maxNamed
	texts = texts[:min(len(texts), maxNamed)]
	for n := range texts {
		if n == len(texts)-1 || hints[n+1] != hints[n] {
			texts[n] += hints[n]
		}
	}
	if more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return problem("%s: %s", all, strings.Join(texts, "; "))
}

func show(o *unstructured.Unstructured) string {
	return Ref{Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()}.String()
}

// show names an object and its file.
func (r Request) show(o *unstructured.Unstructured) string { return show(o) + r.where(o) }

// where names the file of an object as it was declared, where that is known.
func (r Request) where(o *unstructured.Unstructured) string {
	if r.Origin != nil {
		if file := r.Origin(o); file != "" {
			return " in " + file
		}
	}
	return ""
}

// name names an item and its file.
func (r *run) name(i *item) string { return i.ref.String() + r.req.where(i.declared) }

// explain words what the API server said of an object.
func (r *run) explain(i *item, err error) error {
	if f := fault.As(err); f != nil {
		return f
	}
	if lost := lineLost(err); lost != nil {
		return lost
	}
	p := problem("%s", r.name(i)).Because(errors.New(words(i, err)))
	group := r.req.Owner.Group
	switch {
	case webhookFailed(err):
		return p.WithHint("The webhook does not answer, and says that nothing may pass then: look at what serves " +
			"it, or at its failurePolicy in the webhook's configuration")
	case strings.Contains(err.Error(), "admission webhook"), apierrors.IsForbidden(err) &&
		strings.Contains(err.Error(), "ValidatingAdmissionPolicy"):
		return p.WithHint("The cluster's own rules refuse the object: change it as they ask, or have them changed")
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return p.WithHint("Wait until the namespace is gone; its conditions tell what holds it. If it is to stay, " +
			"declare it here too: it is made anew then")
	case isImmutable(err):
		return p.WithHint("The field cannot be changed in place. Set spec.force, or the annotation %s%s: enabled on "+
			"the object, to have it deleted and created anew; or undo the change",
			group, forceKey)
	case apierrors.IsForbidden(err):
		return p.WithHint("Grant this to the account that applies, or set spec.serviceAccountName to one that may")
	case namespaceMissing(err, i.ref.Namespace):
		return p.WithHint("Declare the Namespace, or add a dependsOn to what brings it")
	case kindGone(err):
		r.mapper.Reset() // what was discovered is no longer true
		return p.WithHint("The cluster no longer serves the kind: its CustomResourceDefinition was removed")
	default:
		return p
	}
}

var (
	quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	dumped = regexp.MustCompile(`\{Value:.*?\}`)
	// missingRight is how RBAC refuses: it has not seen the object, and who may not do what is to be told.
	missingRight = regexp.MustCompile(`^User "[^"]*" cannot [a-z]+ resource "[a-z.]*" in API group "[a-z0-9.-]*"( in the namespace "[a-z0-9-]*"| at the cluster scope)?(: RBAC: .*)?$`)
	refusal      = regexp.MustCompile(`^[\w.-]+ "[^"]*" is (?:invalid|forbidden): `)
)

// words returns what the API server said, short of what it repeats of the object, and with no value of a Secret.
func words(i *item, err error) string {
	said := err.Error()
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil && len(status.Status().Details.Causes) > 0 &&
		apierrors.IsInvalid(err) {
		var causes []string
		for _, c := range status.Status().Details.Causes {
			text := shorten(c.Message)
			if c.Field != "" && c.Field != "<nil>" {
				text = c.Field + ": " + text
			}
			causes = append(causes, text)
		}
		said = strings.Join(causes, ", ")
	} else {
		said = refusal.ReplaceAllString(said, "")
	}
	if isSecret(i.ref.groupKind()) && !(apierrors.IsForbidden(err) && missingRight.MatchString(said)) {
		said = mask(said, i.desired)
	}
	return excerpt.Bytes(said, maxWords)
}

// shorten cuts a refused value that is as long as a pod template from what the API server said.
func shorten(said string) string {
	value, found := strings.CutPrefix(said, "Invalid value: ")
	at := strings.LastIndex(value, ": ")
	if found && at > maxValue {
		return value[at+2:]
	}
	return said
}

// mask takes out of a text what may be a value of a Secret.
func mask(said string, secret *unstructured.Unstructured) string {
	said = dumped.ReplaceAllString(said, "{***}")
	said = quoted.ReplaceAllString(said, `"***"`)
	for _, field := range []string{"data", "stringData"} {
		values, ok := secret.Object[field].(map[string]any)
		if !ok {
			continue
		}
		for _, v := range values {
			if text := fmt.Sprint(v); text != "" {
				said = strings.ReplaceAll(said, text, "***")
			}
		}
	}
	return said
}

// unreachable explains that the cluster did not even say which kinds it serves.
func unreachable(err error) error {
	p := problem("cannot find out which kinds the cluster serves").Because(err)
	if apierrors.IsUnauthorized(err) {
		return p.WithHint("The cluster does not accept the credentials: they may have expired, or a token's " +
			"audience may not be one of the cluster's")
	}
	return p
}

// immutables are the ways in which the API server says that a field is set once.
var immutables = []string{
	"immutable", "may not change once set", "may not be changed", "cannot be changed", "cannot change",
	"updates to statefulset spec for fields other than", "pod updates may not change fields other than",
	"updates to parameters are forbidden",
}

// isImmutable tells whether the server refused the change of a field that is set once.
func isImmutable(err error) bool {
	return apierrors.IsInvalid(err) && slices.ContainsFunc(immutables,
		func(s string) bool { return strings.Contains(err.Error(), s) })
}

// lineLost explains that the API server did not answer at all, which has nothing to do with the object; nil if it did.
func lineLost(err error) *fault.Fault {
	why := io.ErrUnexpectedEOF
	var line *net.OpError
	var request *url.Error
	switch {
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return nil
	case errors.As(err, &line): // also in the midst of an answer
		same := *line
		same.Source = nil // a port of ours, by which one reason would be many
		why = &same
	case errors.As(err, &request):
		why = request.Err
	case !errors.Is(err, why):
		return nil
	}
	return problem("cannot reach the cluster").Because(errLineLost{why}).
		WithHint("What was not applied is applied once it answers")
}

// errLineLost is why the API server did not answer, less what it was asked.
type errLineLost struct{ error }

// webhookFailed tells whether an admission webhook was asked and did not answer.
func webhookFailed(err error) bool {
	return apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook")
}

// transient tells whether the server is likely to take the same request in a moment.
func transient(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsServerTimeout(err) ||
		apierrors.IsTimeout(err) || apierrors.IsInternalError(err) && !webhookFailed(err)
}

// namespaceMissing tells whether the server found the namespace, not the object, missing.
func namespaceMissing(err error, namespace string) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsNotFound(err) {
		return false
	}
	d := status.Status().Details
	return d != nil && d.Kind == "namespaces" && d.Name == namespace
}

// notServed tells whether the server does not know a kind, or a field of it, which it will in a moment if the
// definition is new.
func notServed(err error) bool {
	return kindGone(err) || err != nil && strings.Contains(err.Error(), "field not declared in schema")
}

// ofOldVersion tells whether the server may have read an apply in an older version of the kind, which managed
// fields name.
func ofOldVersion(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "request to convert CR") ||
		strings.Contains(err.Error(), "field not declared in schema"))
}

// kindGone tells whether the server found the kind, not the object, missing.
func kindGone(err error) bool {
	return apierrors.IsNotFound(err) && strings.Contains(err.Error(),
		"the server could not find the requested resource")
}

// dryRunUnsupported tells whether a webhook stands in the way that cannot be dry-run.
func dryRunUnsupported(err error) bool {
	return apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "does not support dry run")
}

// isGone tells whether an object is not there, or not the one that was meant.
func isGone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }
