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
	"github.com/sluice-gitops/sluice/api/notification/v1beta3"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// Bounds of an Alert. Go's regular expressions take time linear in the message, and in their own length.
const (
	maxExpressions = 64 // in each list
	maxExpression  = 4 << 10
	maxSources     = 1024
	maxMetadata    = 64
)

// rule is an Alert that can be used, compiled once a generation.
type rule struct {
	alert    *v1beta3.Alert // of the cache: it is read only
	provider types.NamespacedName
	sources  []source

	include, exclude []*regexp.Regexp

	mu   sync.Mutex
	told map[string]bool // keys of metadata that were told to be set twice, up to maxTold
}

// source selects objects of a kind.
type source struct {
	target
	name   string
	labels labels.Selector // nil: any
}

// target is where a source's objects are; any namespace is [v1beta3.Any].
type target struct{ kind, namespace string }

// compile makes the rule of an Alert. The error is a fault.
func compile(a *v1beta3.Alert, noCrossNamespaceRefs bool) (*rule, error) {
	r := &rule{alert: a, provider: types.NamespacedName{Namespace: a.Namespace, Name: a.Spec.ProviderRef.Name}}
	if len(a.Spec.EventSources) > maxSources {
		return nil, invalid("spec.eventSources has more than %d entries", maxSources).
			WithHint("Select by label, or write two Alerts")
	}
	if len(a.Spec.EventMetadata) > maxMetadata {
		return nil, invalid("spec.eventMetadata has more than %d entries", maxMetadata).WithHint("Leave some out")
	}
	for i := range a.Spec.EventSources {
		s, err := compileSource(a, i, noCrossNamespaceRefs)
		if err != nil {
			return nil, err
		}
		r.sources = append(r.sources, s)
	}
	var err error
	if r.include, err = expressions("spec.inclusionList", a.Spec.InclusionList); err != nil {
		return nil, err
	}
	r.exclude, err = expressions("spec.exclusionList", a.Spec.ExclusionList)
	return r, err
}

func compileSource(a *v1beta3.Alert, i int, noCrossNamespaceRefs bool) (source, error) {
	spec, field := a.Spec.EventSources[i], fmt.Sprintf("spec.eventSources[%d]", i)
	s := source{target: target{spec.Kind, cmp.Or(spec.Namespace, a.Namespace)}, name: spec.Name}
	group := notificationv1.GroupOf(spec.Kind)
	gv, err := schema.ParseGroupVersion(spec.APIVersion)
	switch {
	case group == "":
		return s, invalid("%s is of no known kind", field).WithHint("Correct its kind")
	case err != nil || gv.Group != "" && gv.Group != group:
		return s, invalid("%s is of another group than its apiVersion", field).
			WithHint("The group of %s is %s; apiVersion may be left out", spec.Kind, group)
	case noCrossNamespaceRefs && s.namespace != a.Namespace:
		return s, fault.New(meta.AccessDeniedReason, "%s is about another namespace, which is not allowed here", field).
			WithHint("Move the Alert there, or run the controllers without --no-cross-namespace-refs").Final()
	case len(spec.MatchLabels) == 0:
		return s, nil
	case s.name != v1beta3.Any:
		return s, invalid("%s has both a name and matchLabels", field).WithHint("Set the name to * to select by label")
	}
	if s.labels, err = labels.ValidatedSelectorFromSet(spec.MatchLabels); err != nil {
		return s, invalid("%s.matchLabels holds what is no label", field).Because(err).WithHint("Correct it")
	}
	return s, nil
}

func expressions(field string, list []string) ([]*regexp.Regexp, error) {
	if len(list) > maxExpressions {
		return nil, invalid("%s has more than %d entries", field, maxExpressions).WithHint("Join some of them with |")
	}
	var all []*regexp.Regexp
	for i, text := range list {
		if len(text) > maxExpression {
			return nil, invalid("%s[%d] is longer than %d bytes", field, i, maxExpression).WithHint("Make two of it")
		}
		e, err := regexp.Compile(text)
		if err != nil {
			return nil, invalid("%s[%d] is no regular expression", field, i).Because(err).
				WithHint("Correct it: the syntax is that of Go, https://pkg.go.dev/regexp/syntax")
		}
		all = append(all, e)
	}
	return all, nil
}

func invalid(format string, args ...any) *fault.Fault {
	return fault.New(v1beta3.ValidationFailedReason, format, args...).Final()
}

// wants tells whether the rule is about an event of its sources.
func (r *rule) wants(e *event.Event) bool {
	matches := func(x *regexp.Regexp) bool { return x.MatchString(e.Message) }
	switch {
	case e.Severity == event.Trace,
		r.alert.Spec.EventSeverity == v1beta3.ErrorSeverity && e.Severity != event.Error,
		len(r.include) > 0 && !slices.ContainsFunc(r.include, matches):
		return false
	}
	return !slices.ContainsFunc(r.exclude, matches)
}

// annotated marks the keys of metadata that come of the object's annotations.
const annotated = event.AnnotationGroup + "/"

// metadata returns what goes on with the event, and the keys that are set to something else where it does not
// count. What counts most comes last: the object's annotations, spec.eventMetadata, spec.summary, what the
// controller says.
func (r *rule) metadata(e *event.Event) (metadata map[string]string, conflicts []string) {
	metadata = map[string]string{}
	set := func(key, value string) {
		if before, there := metadata[key]; there && before != value {
			conflicts = append(conflicts, key)
		}
		metadata[key] = value
	}
	for k, v := range e.Metadata {
		if key, ok := strings.CutPrefix(k, annotated); ok {
			set(key, v)
		}
	}
	for k, v := range r.alert.Spec.EventMetadata {
		set(k, v)
	}
	if r.alert.Spec.Summary != "" {
		set(v1beta3.SummaryKey, r.alert.Spec.Summary)
	}
	for k, v := range e.Metadata {
		if !strings.HasPrefix(k, annotated) {
			set(k, v)
		}
	}
	if len(metadata) == 0 {
		return nil, nil
	}
	return metadata, conflicts
}

// maxTold bounds the conflicts that an alert is told of, since whoever posts events chooses their keys.
const maxTold = 100

// news returns those of the conflicts that were not told yet, in order.
func (r *rule) news(conflicts []string) []string {
	slices.Sort(conflicts)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told == nil {
		r.told = map[string]bool{}
	}
	var untold []string
	for _, key := range conflicts {
		if !r.told[key] && len(r.told) < maxTold {
			r.told[key] = true
			untold = append(untold, key)
		}
	}
	return untold
}

// Types of Providers by what of an event they need.
var (
	statusTypes = []string{
		v1beta3.GitHubProvider, v1beta3.GitLabProvider, v1beta3.GiteaProvider, v1beta3.BitbucketProvider,
		v1beta3.BitbucketServerProvider,
		v1beta3.AzureDevOpsProvider,
	}
	commentTypes = []string{
		v1beta3.GitHubPullRequestCommentProvider, v1beta3.GitLabMergeRequestCommentProvider,
		v1beta3.GiteaPullRequestCommentProvider,
	}
)

// statusUpdate as the metadata commit_status marks an event that only brings a commit status up to date.
const statusUpdate = "update"

// takes tells whether a type of Provider has anything to do with an event of this metadata.
func takes(kind string, metadata map[string]string) bool {
	switch {
	case slices.Contains(statusTypes, kind):
		return metadata[event.Revision] != "" || metadata[event.OriginRevision] != "" || metadata[event.Commit] != ""
	case metadata[event.CommitStatus] == statusUpdate:
		return false
	case slices.Contains(commentTypes, kind):
		return metadata[event.ChangeRequest] != ""
	}
	return true
}

// key identifies the rule's Alert.
func (r *rule) key() types.NamespacedName { return client.ObjectKeyFromObject(r.alert) }
