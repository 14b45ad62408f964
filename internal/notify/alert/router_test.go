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
	"github.com/sluice-gitops/sluice/api/notification/v1beta3"
	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// book is a router over what a test sets, and what it said.
type book struct {
	*Router
	warnings []string
	gone     []string // providers
	asked    int      // for labels
}

func newBook() *book {
	b := &book{}
	b.Router = &Router{
		rules: map[types.NamespacedName]*rule{}, providers: map[types.NamespacedName]*v1beta3.Provider{},
		Gone: func(key types.NamespacedName) { b.gone = append(b.gone, key.Name) },
		Warn: func(a *v1beta3.Alert, message string) { b.warnings = append(b.warnings, a.Name+": "+message) },
		Labels: func(_ context.Context, kind string, key types.NamespacedName) labels.Set {
			b.asked++
			if kind == "Kustomization" && strings.HasPrefix(key.Name, "shop") {
				return labels.Set{"team": "frontend"}
			}
			return nil
		},
	}
	b.provider("generic", "generic")
	return b
}

func (b *book) provider(name, kind string) *v1beta3.Provider {
	p := &v1beta3.Provider{ObjectMeta: metav1.ObjectMeta{Namespace: "ops", Name: name},
		Spec: v1beta3.ProviderSpec{Type: kind}}
	b.setProvider(client.ObjectKeyFromObject(p), p)
	return p
}

func (b *book) alert(name string, spec v1beta3.AlertSpec) *v1beta3.Alert {
	if spec.ProviderRef.Name == "" {
		spec.ProviderRef = meta.LocalObjectReference{Name: "generic"}
	}
	a := &v1beta3.Alert{ObjectMeta: metav1.ObjectMeta{Namespace: "ops", Name: name, UID: types.UID(name),
		Generation: 1}, Spec: spec}
	b.setAlert(client.ObjectKeyFromObject(a), a)
	return a
}

// route returns the names of the alerts that want an event, in order.
func (b *book) route(t *testing.T, e event.Event) string {
	t.Helper()
	var names []string
	for _, d := range b.Route(t.Context(), e) {
		names = append(names, d.Alert.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func of(kind, namespace, name string, change ...func(*event.Event)) event.Event {
	e := event.Event{
		InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: namespace, Name: name},
		Severity:       event.Info, Reason: "Succeeded", Message: "Applied revision: main@sha1:abc",
	}
	for _, c := range change {
		c(&e)
	}
	return e
}

func failed(e *event.Event) { e.Severity, e.Message = event.Error, "Deployment 'web' failed" }

func with(pairs ...string) func(*event.Event) {
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

func TestWhoWantsAnEvent(t *testing.T) {
	b := newBook()
	kustomizations := func(s v1beta3.EventSource) []v1beta3.EventSource {
		s.Kind = "Kustomization"
		return []v1beta3.EventSource{s}
	}
	for name, spec := range map[string]v1beta3.AlertSpec{
		"named": {EventSources: kustomizations(v1beta3.EventSource{Name: "web"})},
		"all":   {EventSources: kustomizations(v1beta3.EventSource{Name: "*"})},
		"prod":  {EventSources: kustomizations(v1beta3.EventSource{Name: "*", Namespace: "prod"})},
		"errors": {EventSources: kustomizations(v1beta3.EventSource{Name: "*", Namespace: "prod"}),
			EventSeverity: "error"},
		"labelled": {EventSources: kustomizations(v1beta3.EventSource{Name: "*", Namespace: "prod",
			MatchLabels: map[string]string{"team": "frontend"}})},
		"anywhere": {EventSources: kustomizations(v1beta3.EventSource{Name: "*", Namespace: "*",
			MatchLabels: map[string]string{"team": "frontend"}})},
		"grouped": {EventSources: kustomizations(v1beta3.EventSource{Name: "web",
			APIVersion: "kustomize.toolkit.fluxcd.io/v1beta2"})},
		"included": {EventSources: kustomizations(v1beta3.EventSource{Name: "web"}),
			InclusionList: []string{"rolled out", "revision: main@.*"}},
		"excluded": {EventSources: kustomizations(v1beta3.EventSource{Name: "web"}),
			InclusionList: []string{"revision"}, ExclusionList: []string{"^Applied"}},
		"asleep": {EventSources: kustomizations(v1beta3.EventSource{Name: "*"}), Suspend: true},
		"broken": {EventSources: kustomizations(v1beta3.EventSource{Name: "*"}), InclusionList: []string{"("}},
		"homeless": {EventSources: kustomizations(v1beta3.EventSource{Name: "*"}),
			ProviderRef: meta.LocalObjectReference{Name: "none"}},
		"twice": {EventSources: append(kustomizations(v1beta3.EventSource{Name: "*"}),
			v1beta3.EventSource{Kind: "Kustomization", Name: "web"})},
		"gates": {EventSources: []v1beta3.EventSource{{Kind: "Gate", Name: "*"}}},
	} {
		b.alert(name, spec)
	}
	for name, c := range map[string]struct {
		event event.Event
		want  string
	}{
		"by name":                  {of("Kustomization", "ops", "web"), "all grouped included named twice"},
		"another of the namespace": {of("Kustomization", "ops", "db"), "all twice"},
		"a failure":                {of("Kustomization", "prod", "db", failed), "errors prod"},
		"by label":                 {of("Kustomization", "prod", "shop", failed), "anywhere errors labelled prod"},
		"by label, anywhere":       {of("Kustomization", "elsewhere", "shop"), "anywhere"},
		"of another kind":          {of("HelmRelease", "ops", "web"), ""},
		"of a gate":                {of("Gate", "ops", "freeze"), "gates"},
		"of a kind of another name": {of("Kustomization", "ops", "web",
			func(e *event.Event) { e.InvolvedObject.APIVersion = "example.com/v1" }), ""},
		"of the group": {of("Gate", "ops", "a",
			func(e *event.Event) { e.InvolvedObject.APIVersion = "gating.toolkit.fluxcd.io/v1alpha1" }), "gates"},
		"of no weight": {of("Kustomization", "ops", "web",
			func(e *event.Event) { e.Severity = event.Trace }), ""},
	} {
		if got := b.route(t, c.event); got != c.want {
			t.Errorf("%s: %q want it, not %q", name, got, c.want)
		}
	}
}

func TestWhatChangesCountsFromTheNextEvent(t *testing.T) {
	b := newBook()
	web := of("Kustomization", "ops", "web")
	sources := []v1beta3.EventSource{{Kind: "Kustomization", Name: "*"}}
	want := func(when, names string) {
		t.Helper()
		if got := b.route(t, web); got != names {
			t.Errorf("%s: %q want it, not %q", when, got, names)
		}
	}
	a := b.alert("a", v1beta3.AlertSpec{EventSources: sources})
	want("there", "a")
	compiled := b.rules[client.ObjectKeyFromObject(a)]

	told := a.DeepCopy()
	told.Status.ObservedGeneration = 1
	b.setAlert(client.ObjectKeyFromObject(a), told)
	if b.rules[client.ObjectKeyFromObject(a)] != compiled {
		t.Error("a status compiles the alert again")
	}
	suspended := a.DeepCopy()
	suspended.Generation, suspended.Spec.Suspend = 2, true
	b.setAlert(client.ObjectKeyFromObject(a), suspended)
	want("suspended", "")
	resumed := a.DeepCopy()
	resumed.Generation = 3
	b.setAlert(client.ObjectKeyFromObject(a), resumed)
	want("resumed", "a")

	p := b.provider("generic", "generic")
	p.Spec.Suspend = true
	want("the provider is suspended", "")
	b.setProvider(client.ObjectKeyFromObject(p), nil)
	want("the provider is gone", "")
	if len(b.gone) != 1 || b.gone[0] != "generic" {
		t.Errorf("gone are %q", b.gone)
	}
	b.provider("generic", "generic")
	want("it is back", "a")
	b.setAlert(client.ObjectKeyFromObject(a), nil)
	want("deleted", "")
}

func TestLabelsAreAskedForOnceAndOnlyIfTheyDecide(t *testing.T) {
	b := newBook()
	for i := range 5 {
		b.alert(fmt.Sprint("labelled", i), v1beta3.AlertSpec{EventSources: []v1beta3.EventSource{
			{Kind: "Kustomization", Name: "*", MatchLabels: map[string]string{"team": "frontend"}},
		}})
	}
	b.route(t, of("GitRepository", "ops", "shop"))
	if b.asked != 0 {
		t.Errorf("asked %d times for an object that no alert is about", b.asked)
	}
	if got := b.route(t, of("Kustomization", "ops", "shop")); strings.Count(got, "labelled") != 5 || b.asked != 1 {
		t.Errorf("asked %d times, and %q want it", b.asked, got)
	}
}

func TestMetadataAndWhatCountsMost(t *testing.T) {
	b := newBook()
	b.alert("a", v1beta3.AlertSpec{
		EventSources: []v1beta3.EventSource{{Kind: "Kustomization", Name: "*"}}, Summary: "the shop",
		EventMetadata: map[string]string{"cluster": "prod-1", "revision": "mine", "summary": "of the metadata",
			"env": "prod"},
	})
	e := of("Kustomization", "ops", "web", with(
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
		t.Errorf("the event of others changed:\n%s", diff)
	}
	b.route(t, e)
	if len(b.warnings) != 1 || !strings.Contains(b.warnings[0], "a: the metadata env, revision, summary of events") {
		t.Errorf("told %q, want the three keys, once", b.warnings)
	}
}

func TestWhatProvidersHaveToDoWith(t *testing.T) {
	b := newBook()
	for _, kind := range []string{"generic", "slack", "github", "azuredevops", "gitlabmergerequestcomment"} {
		b.provider(kind, kind)
		b.alert(kind, v1beta3.AlertSpec{
			EventSources: []v1beta3.EventSource{{Kind: "Kustomization", Name: "*"}},
			ProviderRef:  meta.LocalObjectReference{Name: kind},
		})
	}
	for name, c := range map[string]struct{ event, want string }{
		"of nothing":                 {"", "generic slack"},
		"of a revision":              {"revision=main@sha1:abc", "azuredevops generic github slack"},
		"of an origin":               {"originRevision=main@sha1:abc", "azuredevops generic github slack"},
		"of a commit by annotation":  {"event.toolkit.fluxcd.io/commit=abc", "azuredevops generic github slack"},
		"of a commit's status alone": {"revision=main@sha1:abc commit_status=update", "azuredevops github"},
		"of a request": {"event.toolkit.fluxcd.io/change_request=7",
			"generic gitlabmergerequestcomment slack"},
		"of a request and its commit": {"change_request=7 revision=main@sha1:abc",
			"azuredevops generic github gitlabmergerequestcomment slack"},
		"of another word of a status": {"commit_status=other", "generic slack"},
		"of a request and status only": {"change_request=7 commit_status=update revision=main@sha1:abc",
			"azuredevops github"},
	} {
		e := of("Kustomization", "ops", "web")
		for pair := range strings.FieldsSeq(c.event) {
			key, value, _ := strings.Cut(pair, "=")
			with(key, value)(&e)
		}
		if got := b.route(t, e); got != c.want {
			t.Errorf("%s: %q get it, not %q", name, got, c.want)
		}
	}
}

func TestAlertsThatCannotBeUsed(t *testing.T) {
	source := func(change func(*v1beta3.EventSource)) v1beta3.AlertSpec {
		s := v1beta3.EventSource{Kind: "Kustomization", Name: "*"}
		change(&s)
		return v1beta3.AlertSpec{EventSources: []v1beta3.EventSource{s}}
	}
	for name, c := range map[string]struct {
		spec         v1beta3.AlertSpec
		reason, says string
	}{
		"a kind unheard of": {source(func(s *v1beta3.EventSource) { s.Kind = "Secret" }), "ValidationFailed",
			"spec.eventSources[0] is of no known kind"},
		"a group that is not": {source(func(s *v1beta3.EventSource) { s.APIVersion = "apps/v1" }), "ValidationFailed",
			"The group of Kustomization is kustomize.toolkit.fluxcd.io"},
		"another namespace": {source(func(s *v1beta3.EventSource) { s.Namespace = "prod" }), "AccessDenied",
			"--no-cross-namespace-refs"},
		"all namespaces": {source(func(s *v1beta3.EventSource) { s.Namespace = "*" }), "AccessDenied",
			"--no-cross-namespace-refs"},
		"a name and labels": {source(func(s *v1beta3.EventSource) {
			s.Name, s.MatchLabels = "a",
				map[string]string{"a": "b"}
		}), "ValidationFailed", "both a name and matchLabels"},
		"what is no label": {source(func(s *v1beta3.EventSource) { s.MatchLabels = map[string]string{"a b": "c"} }),
			"ValidationFailed", "spec.eventSources[0].matchLabels"},
		"an expression": {v1beta3.AlertSpec{ExclusionList: []string{"a", "[a"}}, "ValidationFailed",
			"spec.exclusionList[1] is no regular expression: error parsing regexp: missing closing ]"},
		"one that is too long": {v1beta3.AlertSpec{InclusionList: []string{strings.Repeat("a", maxExpression+1)}},
			"ValidationFailed", "spec.inclusionList[0] is longer"},
		"one that multiplies": {v1beta3.AlertSpec{InclusionList: []string{"((a{1000}){1000}){1000}"}},
			"ValidationFailed", "spec.inclusionList[0] is no regular expression"},
		"too many": {v1beta3.AlertSpec{InclusionList: make([]string, maxExpressions+1)}, "ValidationFailed",
			"spec.inclusionList has more than"},
		"too many sources": {v1beta3.AlertSpec{EventSources: make([]v1beta3.EventSource, maxSources+1)},
			"ValidationFailed", "spec.eventSources has more than"},
	} {
		_, err := compile(&v1beta3.Alert{ObjectMeta: metav1.ObjectMeta{Namespace: "ops"}, Spec: c.spec}, true)
		expectFault(t, name, err, c.reason, c.says, true)
	}
}

// BenchmarkRoute is 20 alerts of which each compares the event with expressions, five of them by label.
func BenchmarkRoute(bench *testing.B) {
	b := newBook()
	for i := range 20 {
		s := v1beta3.EventSource{Kind: "Kustomization", Name: "*", Namespace: "prod"}
		if i%4 == 0 {
			s.MatchLabels = map[string]string{"team": "frontend"}
		}
		b.alert(fmt.Sprint("a", i), v1beta3.AlertSpec{
			EventSources: []v1beta3.EventSource{s}, EventMetadata: map[string]string{"cluster": "prod-1"},
			InclusionList: []string{".*(succeeded|Applied).*"},
			ExclusionList: []string{"waiting.*socket", "dependency .* not ready"},
		})
	}
	e := of("Kustomization", "prod", "shop", with("revision", "main@sha1:abc"))
	for bench.Loop() {
		if n := len(b.Route(bench.Context(), e)); n != 20 {
			bench.Fatal(n)
		}
	}
}

func TestConflictsAreToldOnceAndNotWithoutEnd(t *testing.T) {
	r := &rule{}
	if got := r.news([]string{"b", "a", "a"}); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("told are %q", got)
	}
	if got := r.news([]string{"a", "c"}); !slices.Equal(got, []string{"c"}) {
		t.Errorf("told are %q", got)
	}
	told := 3
	for i := range 2 * maxTold {
		told += len(r.news([]string{strconv.Itoa(i)}))
	}
	if told != maxTold {
		t.Errorf("%d are told", told)
	}
}
