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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/fault"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

const (
	maxProblems      = 10  // problems that one error lists
	maxServerMessage = 600 // bytes of a message of the API server
	maxInvalidValue  = 120 // bytes of a refused value; a longer one is left out
)

func problem(format string, args ...any) *fault.Fault {
	return fault.New(meta.ReconciliationFailedReason, format, args...)
}

// refused joins the problems that were found before anything was written.
func refused(problems []error) error {
	return join(problems, "%d objects refused, nothing was changed")
}

// failed joins the problems of writing.
func failed(problems []error) error { return join(problems, "%d objects could not be applied") }

// join makes one error of all problems. Consecutive problems with the same hint share it.
func join(problems []error, title string) error {
	var texts, hints []string
	var first error
	seen, waits, silent := map[string]bool{}, true, false
	for _, p := range problems {
		if p == nil {
			continue
		}
		if first == nil {
			first = p
		}
		waits, silent = waits && IsWaiting(p), silent || IsUnreachable(p)
		if text := p.Error(); !seen[text] {
			seen[text] = true
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
	more := len(texts) - maxProblems
	texts = texts[:min(len(texts), maxProblems)]
	for n := range texts {
		if n == len(texts)-1 || hints[n+1] != hints[n] {
			texts[n] += hints[n]
		}
	}
	if more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	joined := problem("%s: %s", all, strings.Join(texts, "; "))
	switch {
	case waits:
		return waitingError{joined}
	case silent:
		return silentError{joined}
	}
	return joined
}

// silentError is the error of several problems, for one of which the API server did not respond.
type silentError struct{ error }

func (e silentError) Unwrap() error { return e.error }

// As implements the interface of [errors.As].
func (e silentError) As(target any) bool {
	u, ok := target.(*unreachableError)
	if ok {
		*u = unreachableError(e)
	}
	return ok
}

func show(o *unstructured.Unstructured) string {
	return Ref{Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()}.String()
}

// show returns the name of an object with its file.
func (r Request) show(o *unstructured.Unstructured) string { return show(o) + r.where(o) }

// where returns " in <file>" for an object; empty if the file is unknown.
func (r Request) where(o *unstructured.Unstructured) string {
	if r.Origin != nil {
		if file := r.Origin(o); file != "" {
			return " in " + file
		}
	}
	return ""
}

// name returns the name of an object with its file.
func (r *run) name(o *object) string { return o.ref.String() + r.req.where(o.source) }

// explain returns the error for an object that the API server did not accept.
func (r *run) explain(o *object, err error) error {
	if f := fault.As(err); f != nil {
		return f
	}
	if f := unreachable(err); f != nil {
		return f
	}
	p := problem("%s", r.name(o)).Because(errors.New(serverMessage(o, err)))
	if isKindGone(err) {
		r.mapper.Reset() // the cached discovery is outdated
	}
	return p.WithHint("%s", refusalHint(err, o.ref.Namespace, r.req.Owner))
}

var (
	quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	dumped = regexp.MustCompile(`\{Value:.*?\}`)
	// missingRight matches the messages of RBAC. They name the account and the right, and nothing of the object.
	missingRight = regexp.MustCompile(`^User "[^"]*" cannot [a-z]+ resource "[a-z.]*" in API group "[a-z0-9.-]*"` +
		`( in the namespace "[a-z0-9-]*"| at the cluster scope)?(: RBAC: .*)?$`)
	refusalPrefix = regexp.MustCompile(`^[\w.-]+ "[^"]*" is (?:invalid|forbidden): `)
)

// serverMessage returns the message of the API server without long values of the object and without values of Secrets.
func serverMessage(o *object, err error) string {
	message := err.Error()
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil && len(status.Status().Details.Causes) > 0 &&
		apierrors.IsInvalid(err) {
		var causes []string
		for _, c := range status.Status().Details.Causes {
			text := withoutLongValue(c.Message)
			if c.Field != "" && c.Field != "<nil>" {
				text = c.Field + ": " + text
			}
			causes = append(causes, text)
		}
		message = strings.Join(causes, ", ")
	} else {
		message = refusalPrefix.ReplaceAllString(message, "")
	}
	if isSecret(o.ref.groupKind()) && !(apierrors.IsForbidden(err) && missingRight.MatchString(message)) {
		message = mask(message, o.manifest)
	}
	return excerpt.Bytes(message, maxServerMessage)
}

// lacksRight reports whether the API server refused a request as the account has no right to make it.
func lacksRight(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && apierrors.IsForbidden(err) &&
		missingRight.MatchString(refusalPrefix.ReplaceAllString(status.Status().Message, ""))
}

// withoutLongValue removes a refused value, such as a whole pod template, from a message.
func withoutLongValue(message string) string {
	value, found := strings.CutPrefix(message, "Invalid value: ")
	at := strings.LastIndex(value, ": ")
	if found && at > maxInvalidValue {
		return value[at+2:]
	}
	return message
}

// mask replaces what may be a value of a Secret in a message.
func mask(message string, secret *unstructured.Unstructured) string {
	message = dumped.ReplaceAllString(message, "{"+redact.Masked+"}")
	message = quoted.ReplaceAllString(message, `"`+redact.Masked+`"`)
	for _, field := range []string{"data", "stringData"} {
		values, ok := secret.Object[field].(map[string]any)
		if !ok {
			continue
		}
		for _, v := range values {
			if text := fmt.Sprint(v); text != "" {
				message = strings.ReplaceAll(message, text, redact.Masked)
			}
		}
	}
	return message
}

// discoveryFailed returns the error for a cluster whose kinds cannot be discovered.
func discoveryFailed(err error) error {
	p := problem("cannot discover the kinds that the cluster serves").Because(err)
	if apierrors.IsUnauthorized(err) {
		return p.WithHint("The cluster does not accept the credentials: they may have expired, or the audience of a " +
			"token may not be an audience of the cluster")
	}
	return p
}

// immutableMessages are parts of the messages of the API server for immutable fields.
var immutableMessages = []string{
	"immutable", "may not change once set", "may not be changed", "cannot be changed", "cannot change",
	"updates to statefulset spec for fields other than", "pod updates may not change fields other than",
	"updates to parameters are forbidden",
}

// isImmutable reports whether the server refused the change of an immutable field.
func isImmutable(err error) bool {
	return apierrors.IsInvalid(err) && slices.ContainsFunc(immutableMessages,
		func(s string) bool { return strings.Contains(err.Error(), s) })
}

// unreachable returns the error for an API server that did not respond; nil if it did.
func unreachable(err error) *fault.Fault {
	cause := io.ErrUnexpectedEOF
	var connection *net.OpError
	var request *url.Error
	switch {
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return nil
	case errors.As(err, &connection): // also while a response is read
		same := *connection
		same.Source = nil // a local port, which would make the same cause look different each time
		cause = &same
	case errors.As(err, &request):
		cause = request.Err
	case !errors.Is(err, cause):
		return nil
	}
	return problem("cannot reach the cluster").Because(unreachableError{cause}).
		WithHint("The other objects are applied when the cluster responds again")
}

// unreachableError is the reason why the API server did not respond, without the request.
type unreachableError struct{ error }

// webhookFailed reports whether an admission webhook did not respond.
func webhookFailed(err error) bool {
	return apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook")
}

// isTransient reports whether a retry of the same request is likely to succeed soon.
func isTransient(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsServerTimeout(err) ||
		apierrors.IsTimeout(err) || apierrors.IsInternalError(err) && !webhookFailed(err)
}

// namespaceMissing reports whether the server did not find the namespace of an object.
func namespaceMissing(err error, namespace string) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsNotFound(err) {
		return false
	}
	d := status.Status().Details
	return d != nil && d.Kind == "namespaces" && d.Name == namespace
}

// isNotServedYet reports whether the server does not serve a kind or a field of it. If the definition is new, it will
// soon.
func isNotServedYet(err error) bool {
	return isKindGone(err) || err != nil && strings.Contains(err.Error(), "field not declared in schema")
}

// isVersionConflict reports whether the server may have converted an apply to an older version of the kind, because the
// managed fields name that version.
func isVersionConflict(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "request to convert CR") ||
		strings.Contains(err.Error(), "field not declared in schema"))
}

// isKindGone reports whether the server does not serve the kind of an object.
func isKindGone(err error) bool {
	return apierrors.IsNotFound(err) && strings.Contains(err.Error(),
		"the server could not find the requested resource")
}

// dryRunUnsupported reports whether a webhook does not support dry-runs.
func dryRunUnsupported(err error) bool {
	return apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "does not support dry run")
}

// isGone reports whether an object does not exist, or is not the one that a precondition names.
func isGone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }

// IsUnreachable reports whether an error means that the API server did not respond.
func IsUnreachable(err error) bool { return errors.As(err, &unreachableError{}) }
