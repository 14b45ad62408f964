package alert

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/internal/limits/regex"
	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Bounds of an Alert. The time of its expressions is linear in the length of the message and in their instructions.
const (
	maxExpressions  = 64     // in each list
	maxInstructions = 20_000 // of all expressions
	maxSources      = 1024
	maxMetadata     = 64
)

// rule is a valid Alert, compiled once for each generation.
type rule struct {
	alert    *notificationv1.Alert // from the cache, read-only
	provider types.NamespacedName
	sources  []source

	include, exclude []*regexp.Regexp
	instructions     int // of these expressions

	mu       sync.Mutex
	reported map[string]bool // metadata keys whose conflict was reported, up to maxReported
}

// source selects objects of a kind.
type source struct {
	target
	name   string
	labels labels.Selector // nil selects all
}

// target is the kind and namespace of a source; [notificationv1.Any] is any namespace.
type target struct{ kind, namespace string }

// compile validates an Alert and returns its rule. The error is a fault.
func compile(a *notificationv1.Alert, noCrossNamespaceRefs bool) (*rule, error) {
	r := &rule{alert: a, provider: types.NamespacedName{Namespace: a.Namespace, Name: a.Spec.ProviderRef.Name}}
	if len(a.Spec.EventSources) > maxSources {
		return nil, invalid("spec.eventSources has more than %d entries", maxSources).
			WithHint("Select by label or create a second Alert")
	}
	if len(a.Spec.EventMetadata) > maxMetadata {
		return nil, invalid("spec.eventMetadata has more than %d entries", maxMetadata).WithHint("Remove keys that " +
			"the receivers of the events do not need")
	}
	for i := range a.Spec.EventSources {
		s, err := compileSource(a, i, noCrossNamespaceRefs)
		if err != nil {
			return nil, err
		}
		r.sources = append(r.sources, s)
	}
	var err error
	if r.include, err = r.expressions("spec.inclusionList", a.Spec.InclusionList); err != nil {
		return nil, err
	}
	r.exclude, err = r.expressions("spec.exclusionList", a.Spec.ExclusionList)
	return r, err
}

func compileSource(a *notificationv1.Alert, i int, noCrossNamespaceRefs bool) (source, error) {
	spec, field := a.Spec.EventSources[i], fmt.Sprintf("spec.eventSources[%d]", i)
	s := source{target: target{spec.Kind, cmp.Or(spec.Namespace, a.Namespace)}, name: spec.Name}
	group := notificationv1.GroupOf(spec.Kind)
	gv, err := schema.ParseGroupVersion(spec.APIVersion)
	switch {
	case group == "":
		return s, invalid("%s has an unknown kind", field).WithHint("Correct its kind")
	case err != nil || gv.Group != "" && gv.Group != group:
		return s, invalid("%s has an apiVersion of the wrong group", field).
			WithHint("The group of %s is %s; apiVersion may be omitted", spec.Kind, group)
	case noCrossNamespaceRefs && s.namespace != a.Namespace:
		return s, fault.New(meta.AccessDeniedReason, "%s selects another namespace, which is not allowed", field).
			WithHint("Create the Alert in that namespace, or run the controllers without " +
				"--no-cross-namespace-refs").Final()
	case len(spec.MatchLabels) == 0:
		return s, nil
	}
	if s.labels, err = labels.ValidatedSelectorFromSet(spec.MatchLabels); err != nil {
		return s, invalid("%s.matchLabels contains an invalid label", field).Because(err).WithHint("Correct it")
	}
	return s, nil
}

// expressions compiles a list of regular expressions.
func (r *rule) expressions(field string, list []string) ([]*regexp.Regexp, error) {
	if len(list) > maxExpressions {
		return nil, invalid("%s has more than %d entries", field, maxExpressions).
			WithHint("Combine some of them with |")
	}
	var all []*regexp.Regexp
	for i, text := range list {
		e, size, err := regex.CompileSized(text)
		if err != nil {
			return nil, invalid("%s[%d] is not a valid regular expression", field, i).Because(err).
				WithHint("Correct it; for the syntax see https://pkg.go.dev/regexp/syntax")
		}
		if r.instructions += size; r.instructions > maxInstructions {
			return nil, invalid("the expressions up to %s[%d] stand for more than %d instructions", field, i,
				maxInstructions).WithHint("Use fewer repeats such as {0,1000}, or divide them among several Alerts")
		}
		all = append(all, e)
	}
	return all, nil
}

func invalid(format string, args ...any) *fault.Fault {
	return fault.New(notificationv1.ValidationFailedReason, format, args...).Final()
}

// matches reports whether the rule selects an event of its sources by severity and message.
func (r *rule) matches(e *event.Event, work effort) bool {
	if e.Severity == event.Trace ||
		r.alert.Spec.EventSeverity == notificationv1.ErrorSeverity && e.Severity != event.Error {
		return false
	}
	message := work.part(r, e.Message)
	matchesMessage := func(x *regexp.Regexp) bool { return x.MatchString(message) }
	return (len(r.include) == 0 || slices.ContainsFunc(r.include, matchesMessage)) &&
		!slices.ContainsFunc(r.exclude, matchesMessage)
}

// maxEffort bounds what the expressions of the Alerts of a namespace cost for an event: instructions times bytes of the
// message. It takes a fraction of a second.
const maxEffort = 8 << 20

// effort is what the expressions of each namespace have cost for an event.
type effort map[string]int

// part returns the part of a message that the expressions of a rule see. It is all of the message, unless the
// expressions of the namespace cost too much.
func (w effort) part(r *rule, message string) string {
	left := max(0, maxEffort-w[r.alert.Namespace])
	message = message[:min(len(message), left/max(r.instructions, 1))]
	w[r.alert.Namespace] += r.instructions * len(message)
	return message
}

// annotationPrefix is the prefix of metadata keys from annotations of the object.
const annotationPrefix = event.AnnotationGroup + "/"

// metadata returns the metadata of the delivery, and the keys that are set to different values. The precedence,
// lowest first, is: annotations of the object, spec.eventMetadata, spec.summary, metadata from the controller.
func (r *rule) metadata(e *event.Event) (metadata map[string]string, conflicts []string) {
	metadata = map[string]string{}
	set := func(key, value string) {
		if previous, isSet := metadata[key]; isSet && previous != value {
			conflicts = append(conflicts, key)
		}
		metadata[key] = value
	}
	for k, v := range e.Metadata {
		if key, ok := strings.CutPrefix(k, annotationPrefix); ok {
			set(key, v)
		}
	}
	for k, v := range r.alert.Spec.EventMetadata {
		set(k, v)
	}
	if r.alert.Spec.Summary != "" {
		set(notificationv1.SummaryKey, r.alert.Spec.Summary)
	}
	for k, v := range e.Metadata {
		if !strings.HasPrefix(k, annotationPrefix) {
			set(k, v)
		}
	}
	if len(metadata) == 0 {
		return nil, nil
	}
	return metadata, conflicts
}

// maxReported bounds the conflicts reported for an alert, since the sender of an event chooses its keys.
const maxReported = 100

// unreported returns the conflicts that were not reported before, sorted, and records them as reported.
func (r *rule) unreported(conflicts []string) []string {
	slices.Sort(conflicts)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reported == nil {
		r.reported = map[string]bool{}
	}
	var keys []string
	for _, key := range conflicts {
		if !r.reported[key] && len(r.reported) < maxReported {
			r.reported[key] = true
			keys = append(keys, key)
		}
	}
	return keys
}

// Provider types that need certain metadata.
var (
	statusTypes = []string{
		notificationv1.GitHubProvider, notificationv1.GitLabProvider, notificationv1.GiteaProvider,
		notificationv1.BitbucketProvider,
		notificationv1.BitbucketServerProvider,
		notificationv1.AzureDevOpsProvider,
	}
	commentTypes = []string{
		notificationv1.GitHubPullRequestCommentProvider, notificationv1.GitLabMergeRequestCommentProvider,
		notificationv1.GiteaPullRequestCommentProvider,
	}
)

// supports reports whether a Provider type can use an event with this metadata.
func supports(providerType string, metadata map[string]string) bool {
	switch {
	case slices.Contains(statusTypes, providerType):
		return metadata[event.Revision] != "" || metadata[event.OriginRevision] != "" || metadata[event.Commit] != ""
	case providerType == notificationv1.GenericProvider, providerType == notificationv1.GenericHMACProvider:
		return true // for programs, which choose by the metadata
	case metadata[event.CommitStatus] == event.CommitStatusUpdate:
		return false
	case slices.Contains(commentTypes, providerType):
		return metadata[event.ChangeRequest] != ""
	}
	return true
}

// key returns the name of the Alert.
func (r *rule) key() types.NamespacedName { return client.ObjectKeyFromObject(r.alert) }
