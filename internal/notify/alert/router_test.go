package alert

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// testRouter is a router without informers that records its callbacks.
type testRouter struct {
	*Router
	warnings []string
	deleted  []string // providers
	lookups  int      // of labels
}

func newTestRouter() *testRouter {
	b := &testRouter{}
	b.Router = &Router{
		rules: map[types.NamespacedName]*rule{}, providers: map[types.NamespacedName]*notificationv1.Provider{},
		Deleted: func(key types.NamespacedName) { b.deleted = append(b.deleted, key.Name) },
		Warn:    func(a *notificationv1.Alert, message string) { b.warnings = append(b.warnings, a.Name+": "+message) },
		Labels: func(_ context.Context, kind string, key types.NamespacedName) labels.Set {
			b.lookups++
			if kind == "Kustomization" && strings.HasPrefix(key.Name, "shop") {
				return labels.Set{"team": "frontend"}
			}
			return nil
		},
	}
	b.provider("generic", "generic")
	return b
}

func (b *testRouter) provider(name, kind string) *notificationv1.Provider {
	p := &notificationv1.Provider{ObjectMeta: metav1.ObjectMeta{Namespace: "ops", Name: name},
		Spec: notificationv1.ProviderSpec{Type: kind}}
	b.setProvider(client.ObjectKeyFromObject(p), p)
	return p
}

func (b *testRouter) alert(name string, spec notificationv1.AlertSpec) *notificationv1.Alert {
	if spec.ProviderRef.Name == "" {
		spec.ProviderRef = meta.LocalObjectReference{Name: "generic"}
	}
	a := &notificationv1.Alert{ObjectMeta: metav1.ObjectMeta{Namespace: "ops", Name: name, UID: types.UID(name),
		Generation: 1}, Spec: spec}
	b.setAlert(client.ObjectKeyFromObject(a), a)
	return a
}

// route returns the names of the alerts that select an event, sorted.
func (b *testRouter) route(t *testing.T, e event.Event) string {
	t.Helper()
	var names []string
	for _, d := range b.Route(t.Context(), e) {
		names = append(names, d.Alert.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func newEvent(kind, namespace, name string, change ...func(*event.Event)) event.Event {
	e := event.Event{
		InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: namespace, Name: name},
		Severity:       event.Info, Reason: "Succeeded", Message: "Applied revision: main@sha1:abc",
	}
	for _, c := range change {
		c(&e)
	}
	return e
}

func withFailure(e *event.Event) { e.Severity, e.Message = event.Error, "Deployment 'web' failed" }

func withMetadata(pairs ...string) func(*event.Event) {
	return func(e *event.Event) {
		e.Metadata = maps.Clone(e.Metadata)
		if e.Metadata == nil {
			e.Metadata = map[string]string{}
		}
		for i := 0; i < len(pairs); i += 2 {
			e.Metadata[pairs[i]] = pairs[i+1]
		}
	}
}

func TestRoute(t *testing.T) {
	b := newTestRouter()
	kustomizations := func(s notificationv1.EventSource) []notificationv1.EventSource {
		s.Kind = "Kustomization"
		return []notificationv1.EventSource{s}
	}
	for name, spec := range map[string]notificationv1.AlertSpec{
		"named": {EventSources: kustomizations(notificationv1.EventSource{Name: "web"})},
		"all":   {EventSources: kustomizations(notificationv1.EventSource{Name: "*"})},
		"prod":  {EventSources: kustomizations(notificationv1.EventSource{Name: "*", Namespace: "prod"})},
		"errors": {EventSources: kustomizations(notificationv1.EventSource{Name: "*", Namespace: "prod"}),
			EventSeverity: "error"},
		"labelled": {EventSources: kustomizations(notificationv1.EventSource{Name: "*", Namespace: "prod",
			MatchLabels: map[string]string{"team": "frontend"}})},
		"anywhere": {EventSources: kustomizations(notificationv1.EventSource{Name: "*", Namespace: "*",
			MatchLabels: map[string]string{"team": "frontend"}})},
		"one-labelled": {EventSources: kustomizations(notificationv1.EventSource{Name: "shop", Namespace: "prod",
			MatchLabels: map[string]string{"team": "frontend"}})},
		"named-other": {EventSources: kustomizations(notificationv1.EventSource{Name: "web", Namespace: "prod",
			MatchLabels: map[string]string{"team": "frontend"}})},
		"grouped": {EventSources: kustomizations(notificationv1.EventSource{Name: "web",
			APIVersion: "kustomize.toolkit.fluxcd.io/v1beta2"})},
		"included": {EventSources: kustomizations(notificationv1.EventSource{Name: "web"}),
			InclusionList: []string{"rolled out", "revision: main@.*"}},
		"excluded": {EventSources: kustomizations(notificationv1.EventSource{Name: "web"}),
			InclusionList: []string{"revision"}, ExclusionList: []string{"^Applied"}},
		"suspended": {EventSources: kustomizations(notificationv1.EventSource{Name: "*"}), Suspend: true},
		"broken": {EventSources: kustomizations(notificationv1.EventSource{Name: "*"}),
			InclusionList: []string{"("}},
		"no-provider": {EventSources: kustomizations(notificationv1.EventSource{Name: "*"}),
			ProviderRef: meta.LocalObjectReference{Name: "none"}},
		"twice": {EventSources: append(kustomizations(notificationv1.EventSource{Name: "*"}),
			notificationv1.EventSource{Kind: "Kustomization", Name: "web"})},
		"gates": {EventSources: []notificationv1.EventSource{{Kind: "Gate", Name: "*"}}},
	} {
		b.alert(name, spec)
	}
	for name, c := range map[string]struct {
		event event.Event
		want  string
	}{
		"selected by name": {event: newEvent("Kustomization", "ops", "web"),
			want: "all grouped included named twice"},
		"other object": {event: newEvent("Kustomization", "ops", "db"), want: "all twice"},
		"failure":      {event: newEvent("Kustomization", "prod", "db", withFailure), want: "errors prod"},
		"selected by label": {event: newEvent("Kustomization", "prod", "shop", withFailure),
			want: "anywhere errors labelled one-labelled prod"},
		"label in any namespace": {event: newEvent("Kustomization", "elsewhere", "shop"), want: "anywhere"},
		"other kind":             {event: newEvent("HelmRelease", "ops", "web"), want: ""},
		"gate":                   {event: newEvent("Gate", "ops", "freeze"), want: "gates"},
		"kind of another group": {event: newEvent("Kustomization", "ops", "web",
			func(e *event.Event) { e.InvolvedObject.APIVersion = "example.com/v1" }), want: ""},
		"kind of the group": {event: newEvent("Gate", "ops", "a",
			func(e *event.Event) { e.InvolvedObject.APIVersion = "gating.toolkit.fluxcd.io/v1alpha1" }), want: "gates"},
		"severity trace": {event: newEvent("Kustomization", "ops", "web",
			func(e *event.Event) { e.Severity = event.Trace }), want: ""},
	} {
		if got := b.route(t, c.event); got != c.want {
			t.Errorf("%s: selected by %q, want %q", name, got, c.want)
		}
	}
}

func TestChangesTakeEffectWithNextEvent(t *testing.T) {
	b := newTestRouter()
	web := newEvent("Kustomization", "ops", "web")
	sources := []notificationv1.EventSource{{Kind: "Kustomization", Name: "*"}}
	expect := func(when, names string) {
		t.Helper()
		if got := b.route(t, web); got != names {
			t.Errorf("%s: selected by %q, want %q", when, got, names)
		}
	}
	a := b.alert("a", notificationv1.AlertSpec{EventSources: sources})
	expect("created", "a")
	compiled := b.rules[client.ObjectKeyFromObject(a)]

	withStatus := a.DeepCopy()
	withStatus.Status.ObservedGeneration = 1
	b.setAlert(client.ObjectKeyFromObject(a), withStatus)
	if b.rules[client.ObjectKeyFromObject(a)] != compiled {
		t.Error("a status update compiles the alert again")
	}
	suspended := a.DeepCopy()
	suspended.Generation, suspended.Spec.Suspend = 2, true
	b.setAlert(client.ObjectKeyFromObject(a), suspended)
	expect("suspended", "")
	resumed := a.DeepCopy()
	resumed.Generation = 3
	b.setAlert(client.ObjectKeyFromObject(a), resumed)
	expect("resumed", "a")

	p := b.provider("generic", "generic")
	p.Spec.Suspend = true
	expect("provider suspended", "")
	b.setProvider(client.ObjectKeyFromObject(p), nil)
	expect("provider deleted", "")
	if len(b.deleted) != 1 || b.deleted[0] != "generic" {
		t.Errorf("deleted providers are %q", b.deleted)
	}
	b.provider("generic", "generic")
	expect("provider created again", "a")
	b.setAlert(client.ObjectKeyFromObject(a), nil)
	expect("deleted", "")
}

func TestLabelsAreLoadedOnceIfNeeded(t *testing.T) {
	b := newTestRouter()
	for i := range 5 {
		b.alert(fmt.Sprint("labelled", i), notificationv1.AlertSpec{EventSources: []notificationv1.EventSource{
			{Kind: "Kustomization", Name: "*", MatchLabels: map[string]string{"team": "frontend"}},
		}})
	}
	b.route(t, newEvent("GitRepository", "ops", "shop"))
	if b.lookups != 0 {
		t.Errorf("labels of an object without alerts were loaded %d times", b.lookups)
	}
	if got := b.route(t, newEvent("Kustomization", "ops", "shop")); strings.Count(got, "labelled") != 5 ||
		b.lookups != 1 {
		t.Errorf("labels were loaded %d times, selected by %q", b.lookups, got)
	}
}

func TestMetadataPrecedence(t *testing.T) {
	b := newTestRouter()
	b.alert("a", notificationv1.AlertSpec{
		EventSources: []notificationv1.EventSource{{Kind: "Kustomization", Name: "*"}}, Summary: "the shop",
		EventMetadata: map[string]string{"cluster": "prod-1", "revision": "mine", "summary": "of the metadata",
			"env": "prod"},
	})
	e := newEvent("Kustomization", "ops", "web", withMetadata(
		"revision", "main@sha1:abc", "event.toolkit.fluxcd.io/env", "of the object",
		"event.toolkit.fluxcd.io/owner", "anna",
		"event.toolkit.fluxcd.io/revision", "of the object"))
	before := maps.Clone(e.Metadata)
	got := b.Route(t.Context(), e)
	if len(got) != 1 {
		t.Fatalf("%+v", got)
	}
	want := map[string]string{"revision": "main@sha1:abc", "cluster": "prod-1", "summary": "the shop", "env": "prod",
		"owner": "anna"}
	if diff := cmp.Diff(want, got[0].Event.Metadata); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(before, e.Metadata); diff != "" {
		t.Errorf("the original event was changed:\n%s", diff)
	}
	b.route(t, e)
	if len(b.warnings) != 1 || !strings.Contains(b.warnings[0], "a: the metadata env, revision, summary of events") {
		t.Errorf("warnings are %q, want one with three keys", b.warnings)
	}
}

func TestProvidersGetSupportedEventsOnly(t *testing.T) {
	b := newTestRouter()
	for _, kind := range []string{"generic", "slack", "github", "azuredevops", "gitlabmergerequestcomment"} {
		b.provider(kind, kind)
		b.alert(kind, notificationv1.AlertSpec{
			EventSources: []notificationv1.EventSource{{Kind: "Kustomization", Name: "*"}},
			ProviderRef:  meta.LocalObjectReference{Name: kind},
		})
	}
	for name, c := range map[string]struct{ event, want string }{
		"no metadata":       {event: "", want: "generic slack"},
		"revision":          {event: "revision=main@sha1:abc", want: "azuredevops generic github slack"},
		"origin revision":   {event: "originRevision=main@sha1:abc", want: "azuredevops generic github slack"},
		"commit annotation": {event: "event.toolkit.fluxcd.io/commit=abc", want: "azuredevops generic github slack"},
		"commit status update": {event: "revision=main@sha1:abc commit_status=update",
			want: "azuredevops generic github"},
		"change request": {event: "event.toolkit.fluxcd.io/change_request=7",
			want: "generic gitlabmergerequestcomment slack"},
		"change request and revision": {event: "change_request=7 revision=main@sha1:abc",
			want: "azuredevops generic github gitlabmergerequestcomment slack"},
		"unknown commit status": {event: "commit_status=other", want: "generic slack"},
		"change request and commit status update": {
			event: "change_request=7 commit_status=update revision=main@sha1:abc",
			want:  "azuredevops generic github"},
	} {
		e := newEvent("Kustomization", "ops", "web")
		for pair := range strings.FieldsSeq(c.event) {
			key, value, _ := strings.Cut(pair, "=")
			withMetadata(key, value)(&e)
		}
		if got := b.route(t, e); got != c.want {
			t.Errorf("%s: sent to %q, want %q", name, got, c.want)
		}
	}
}

func TestInvalidAlerts(t *testing.T) {
	source := func(change func(*notificationv1.EventSource)) notificationv1.AlertSpec {
		s := notificationv1.EventSource{Kind: "Kustomization", Name: "*"}
		change(&s)
		return notificationv1.AlertSpec{EventSources: []notificationv1.EventSource{s}}
	}
	for name, c := range map[string]struct {
		spec         notificationv1.AlertSpec
		reason, want string
	}{
		"unknown kind": {reason: "ValidationFailed", want: "spec.eventSources[0] has an unknown kind. Correct " +
			"its kind",
			spec: source(func(s *notificationv1.EventSource) { s.Kind = "Secret" })},
		"wrong group": {reason: "ValidationFailed", want: "The group of Kustomization is " +
			"kustomize.toolkit.fluxcd.io; apiVersion may be omitted",
			spec: source(func(s *notificationv1.EventSource) { s.APIVersion = "apps/v1" })},
		"other namespace": {reason: "AccessDenied", want: "Create the Alert in that namespace, or run the " +
			"controllers without --no-cross-namespace-refs",
			spec: source(func(s *notificationv1.EventSource) { s.Namespace = "prod" })},
		"all namespaces": {reason: "AccessDenied", want: "--no-cross-namespace-refs",
			spec: source(func(s *notificationv1.EventSource) { s.Namespace = "*" })},
		"invalid label": {reason: "ValidationFailed", want: "spec.eventSources[0].matchLabels",
			spec: source(func(s *notificationv1.EventSource) { s.MatchLabels = map[string]string{"a b": "c"} })},
		"invalid expression": {reason: "ValidationFailed",
			want: "spec.exclusionList[1] is not a valid regular expression: error parsing regexp: missing closing ]",
			spec: notificationv1.AlertSpec{ExclusionList: []string{"a", "[a"}}},
		"long expression": {reason: "ValidationFailed", want: "spec.inclusionList[0] is not a valid regular " +
			"expression: it is longer than 4096 bytes",
			spec: notificationv1.AlertSpec{InclusionList: []string{strings.Repeat("a", 4097)}}},
		"expression with nested repetition": {reason: "ValidationFailed",
			want: "spec.inclusionList[0] is not a valid regular expression",
			spec: notificationv1.AlertSpec{InclusionList: []string{"((a{1000}){1000}){1000}"}}},
		"expression that stands for a large program": {reason: "ValidationFailed", want: "instructions, at most 10000",
			spec: notificationv1.AlertSpec{InclusionList: []string{"(?s)" + strings.Repeat(".{0,1000}", 450) + "€"}}},
		"expressions that stand for a large program": {reason: "ValidationFailed",
			want: "the expressions up to spec.exclusionList[2] stand for more than 20000 instructions. " +
				"Use fewer repeats such as {0,1000}, or divide them among several Alerts",
			spec: notificationv1.AlertSpec{ExclusionList: slices.Repeat([]string{strings.Repeat("a{900}", 3)}, 5)}},
		"too many expressions": {reason: "ValidationFailed", want: "spec.inclusionList has more than 64 entries. " +
			"Combine some of them with |",
			spec: notificationv1.AlertSpec{InclusionList: make([]string, maxExpressions+1)}},
		"too many sources": {reason: "ValidationFailed", want: "spec.eventSources has more than 1024 entries. " +
			"Select by label or create a second Alert",
			spec: notificationv1.AlertSpec{EventSources: make([]notificationv1.EventSource, maxSources+1)}},
	} {
		_, err := compile(&notificationv1.Alert{ObjectMeta: metav1.ObjectMeta{Namespace: "ops"}, Spec: c.spec}, true)
		expectFault(t, name, err, c.reason, c.want, true)
	}
}

// TestExpressionsOfANamespaceShareTheirTime checks that Alerts with costly expressions see less of a long message, and
// those of other namespaces all of it.
func TestExpressionsOfANamespaceShareTheirTime(t *testing.T) {
	rules := map[string]*rule{}
	for namespace, list := range map[string][]string{"hostile": {strings.Repeat("x{0,900}", 3)}, "other": {"end"}} {
		var err error
		if rules[namespace], err = compile(&notificationv1.Alert{ObjectMeta: metav1.ObjectMeta{Namespace: namespace},
			Spec: notificationv1.AlertSpec{InclusionList: list}}, false); err != nil {
			t.Fatal(err)
		}
	}
	message, work, seen := strings.Repeat("x", 32<<10)+"end", effort{}, 0
	for range 100 {
		seen += len(work.part(rules["hostile"], message))
	}
	if seen == 0 || seen*rules["hostile"].instructions > maxEffort {
		t.Errorf("%d instructions saw %d bytes", rules["hostile"].instructions, seen)
	}
	if !rules["other"].matches(&event.Event{Message: message}, work) {
		t.Error("another namespace did not see the end of the message")
	}
}

// BenchmarkRoute routes an event with 20 alerts that have regular expressions; five select by label.
func BenchmarkRoute(bench *testing.B) {
	b := newTestRouter()
	for i := range 20 {
		s := notificationv1.EventSource{Kind: "Kustomization", Name: "*", Namespace: "prod"}
		if i%4 == 0 {
			s.MatchLabels = map[string]string{"team": "frontend"}
		}
		b.alert(fmt.Sprint("a", i), notificationv1.AlertSpec{
			EventSources: []notificationv1.EventSource{s}, EventMetadata: map[string]string{"cluster": "prod-1"},
			InclusionList: []string{".*(succeeded|Applied).*"},
			ExclusionList: []string{"waiting.*socket", "dependency .* not ready"},
		})
	}
	e := newEvent("Kustomization", "prod", "shop", withMetadata("revision", "main@sha1:abc"))
	for bench.Loop() {
		if n := len(b.Route(bench.Context(), e)); n != 20 {
			bench.Fatal(n)
		}
	}
}

func TestConflictsAreReportedOnceUpToABound(t *testing.T) {
	r := &rule{}
	if got := r.unreported([]string{"b", "a", "a"}); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("unreported conflicts are %q", got)
	}
	if got := r.unreported([]string{"a", "c"}); !slices.Equal(got, []string{"c"}) {
		t.Errorf("unreported conflicts are %q", got)
	}
	reported := 3
	for i := range 2 * maxReported {
		reported += len(r.unreported([]string{strconv.Itoa(i)}))
	}
	if reported != maxReported {
		t.Errorf("%d conflicts reported, want %d", reported, maxReported)
	}
}

// TestDiffsStayInTheirNamespace routes the event of an apply to Alerts of other namespaces.
func TestDiffsStayInTheirNamespace(t *testing.T) {
	const message = "2 objects configured\nConfigMap/apps/a configured\nConfigMap/apps/b configured\n" +
		"ConfigMap/apps/a:\n  data.password: old -> s3cret\n  \nConfigMap/apps/b:\n  data.x: 1 -> s3cret"
	const without = "2 objects configured\nConfigMap/apps/a configured\nConfigMap/apps/b configured\n" +
		"Differences are shown only to Alerts in namespace 'apps'"
	for name, c := range map[string]struct{ object, platform, want string }{
		"same namespace":    {"ops", "", message},
		"another namespace": {"apps", "sluice-system", without},
		"platform":          {"apps", "ops", message},
	} {
		b := newTestRouter()
		b.PlatformNamespace = c.platform
		b.alert("all", notificationv1.AlertSpec{EventSources: []notificationv1.EventSource{
			{Kind: "Kustomization", Name: "*", Namespace: c.object}}})
		e := newEvent("Kustomization", c.object, "a", func(e *event.Event) { e.Message = message })
		deliveries := b.Route(t.Context(), e)
		if len(deliveries) != 1 || deliveries[0].Event.Message != c.want {
			t.Errorf("%s: got %+v, want %q", name, deliveries, c.want)
		}
	}
}
