package review

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/cluster/risk"
	"github.com/sluice-gitops/sluice/internal/githost"
	"github.com/sluice-gitops/sluice/internal/review/preview"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	was := inputs{head: "h", base: "b", cluster: "c", trusted: true}
	long, short := now.Add(-time.Hour), now.Add(-time.Minute)
	for name, c := range map[string]struct {
		known               *known
		head, base, cluster string
		login, branch       string
		urgent, due         bool
	}{
		"a new one":                      {head: "h", urgent: true, due: true},
		"open at the start":              {known: &known{backlog: "h"}, due: true},
		"pushed since the start":         {known: &known{backlog: "h"}, head: "h2", urgent: true, due: true},
		"unchanged":                      {known: &known{inputs: was, at: long}},
		"running":                        {known: &known{inputs: was, running: true}, head: "h2"},
		"a push":                         {known: &known{inputs: was, at: short}, head: "h2", urgent: true, due: true},
		"the base moves":                 {known: &known{inputs: was, at: short}, base: "b2", due: true},
		"the base is not known":          {known: &known{inputs: was, at: short}, base: "-"},
		"the cluster changes":            {known: &known{inputs: was, at: long}, cluster: "c2", due: true},
		"the cluster changes soon again": {known: &known{inputs: was, at: short}, cluster: "c2"},
		"it failed long ago":             {known: &known{inputs: was, at: long, failed: true}, due: true},
		"it failed just now":             {known: &known{inputs: was, at: short, failed: true}},
		"a person opens its page": {known: &known{inputs: was, at: short, evicted: true}, urgent: true,
			due: true},
		"an agent's branch": {known: &known{inputs: was, at: short}, branch: "sluice-mcp/add-1", urgent: true,
			due: true},
		"the author is not allowed now": {known: &known{inputs: was, at: short}, login: "eve", urgent: true,
			due: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			or := func(a, b string) string {
				if a == "" {
					return b
				}
				return a
			}
			listed := []githost.ListedRequest{{Number: 1, Base: "main", Commit: or(c.head, "h"),
				Login: or(c.login, "Mona"), Branch: c.branch}, {Number: 2, Base: "other", Commit: "h"}}
			bases := map[string]string{"main": or(c.base, "b")}
			if c.base == "-" {
				bases = nil
			}
			has := map[int]known{3: {at: long}}
			if c.known != nil {
				has[1] = *c.known
			}
			p := decide(&Repository{Branches: []string{"main"}, Authors: []string{"mona"}}, listed, bases,
				or(c.cluster, "c"), has, now)
			if due := len(p.jobs) == 1; due != c.due || due && p.jobs[0].urgent != c.urgent {
				t.Errorf("got %+v", p.jobs)
			}
			if len(p.open) != 1 || !reflect.DeepEqual(p.forget, []int{3}) {
				t.Errorf("got %+v", p)
			}
		})
	}
}

func TestUrgentReviewsComeFirst(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var listed []githost.ListedRequest
	has := map[int]known{}
	for n := range maxPulls + 5 {
		listed = append(listed, githost.ListedRequest{Number: int64(n + 1), Base: "main", Commit: "h"})
		has[n+1] = known{inputs: inputs{head: "h", base: "b"}, at: now}
	}
	has[100], has[200] = known{}, known{}
	listed[199].Login = "mona"
	p := decide(&Repository{Authors: []string{"mona"}}, listed, map[string]string{"main": "b2"}, "", has, now)
	if len(p.jobs) != maxPulls || len(p.forget) != 5 || p.jobs[0].number != 200 ||
		p.jobs[1].number != 100 || p.jobs[2].urgent {
		t.Errorf("%d jobs, first %+v; forgotten: %v", len(p.jobs), p.jobs[:2], p.forget)
	}
}

func TestReadOnly(t *testing.T) {
	t.Parallel()
	for request, want := range map[string]bool{
		"GET /api/v1/namespaces/a/secrets/b":                                true,
		"GET /api/v1/namespaces/a/pods/b/exec":                              false,
		"GET /api/v1/namespaces/a/services/b/proxy/x":                       true,
		"PATCH /api/v1/namespaces/a/configmaps/b?dryRun=All":                true,
		"PATCH /api/v1/namespaces/a/configmaps/b":                           false,
		"PATCH /api/v1/namespaces/a/configmaps/b?dryRun=All&dryRun=":        false,
		"DELETE /api/v1/namespaces/a/configmaps/b":                          false,
		"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews":       true,
		"POST /api/v1/namespaces/a/serviceaccounts/b/token":                 false,
		"POST /api/v1/namespaces/a/pods/b/eviction":                         false,
		"PUT /apis/apps/v1/namespaces/a/deployments/b/scale?fieldManager=x": false,
	} {
		method, address, _ := strings.Cut(request, " ")
		if got := onlyReads(httptest.NewRequestWithContext(t.Context(), method, address, http.NoBody)); got != want {
			t.Errorf("%s: got %t", request, got)
		}
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	on := func(change func(*Repository)) *Config {
		r := &Repository{Name: "a", URL: "https://github.com/o/r", Type: "github", TokenFile: "t"}
		change(r)
		return &Config{Repositories: []*Repository{r}}
	}
	for want, c := range map[string]*Config{
		"repositories is empty":         {},
		"repositories[0].name must":     on(func(r *Repository) { r.Name = "A" }),
		"set either tokenFile":          on(func(r *Repository) { r.TokenFile = "" }),
		"unknown git host type":         on(func(r *Repository) { r.Type = "x" }),
		"failOn: \"x\" is not a level":  on(func(r *Repository) { r.FailOn = "x" }),
		"tokenFile: stat /nonexistent/": on(func(*Repository) {}),
	} {
		if err := c.complete("/nonexistent", risk.None); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestPlacesOfObjects(t *testing.T) {
	t.Parallel()
	got := placesOf("# a\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  labels: {a: b}\n  name: one\n---\n" +
		"metadata:\n  name: \"two\"\nkind: Secret\ndata:\n  name: three\n---\nkind: X\n")
	if want := map[string]int{"ConfigMap/one": 3, "Secret/two": 10}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestWhatAChangeBrings(t *testing.T) {
	t.Parallel()
	r := &preview.Result{Owners: []*preview.Owner{
		{Owner: risk.Owner{Kind: "Kustomization", Namespace: "a", Name: "b"}, Objects: []preview.Object{
			{Object: risk.Object{Action: risk.Created, Kind: "Pod", Namespace: "n", Name: "p",
				UnknownFields: []string{"spec.x"}, Images: []risk.Image{{New: "nginx:1"}, {Old: "old"}}}},
			{Object: risk.Object{Action: risk.Deleted, Kind: "Pod", Namespace: "m", Name: "q",
				Images: []risk.Image{{New: "gone"}}}},
			{Object: risk.Object{Action: risk.Created, Kind: "Namespace", Name: "o"}}}},
		{Owner: risk.Owner{Kind: "Kustomization", Namespace: "a", Name: "c"}, Cluster: "a/prod",
			Error: `Deployment.apps "x" is invalid: spec`}}}
	blast := blastOf(r)
	if want := (Blast{Applications: []string{"Kustomization/a/b", "Kustomization/a/c"},
		Clusters:   []string{"a/prod", OwnCluster},
		Namespaces: []string{"m", "n", "o"}}); !reflect.DeepEqual(blast, want) {
		t.Errorf("got %+v", blast)
	}
	if got := problemsOf(r); len(got) != 2 || got[0].Message != "the kind has no field spec.x" {
		t.Errorf("got %+v", got)
	}
	if got := imagesOf(r); len(got) != 1 || got[0].Name != "nginx:1" || got[0].Of[0] != "Pod/n/p" {
		t.Errorf("got %+v", got)
	}
}
