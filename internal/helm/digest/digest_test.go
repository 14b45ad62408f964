package digest_test

import (
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/helm/digest"
)

// sum is the digest of a text that the tests spell out: it does not depend on any encoder.
func sum(text string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text))) }

var deployed = time.Date(2026, 3, 1, 12, 30, 0, 123456789, time.UTC)

func full() *release.Release {
	return &release.Release{
		Name: "app", Namespace: "team", Version: 3, Manifest: "---\n# Source: <x> & y\n",
		Labels: map[string]string{"not": "covered"}, ApplyMethod: "ssa",
		Config: map[string]any{"b": 1.0, "a": map[string]any{"list": []any{"x", nil}}},
		Info: &release.Info{FirstDeployed: deployed, LastDeployed: deployed.Add(time.Hour),
			Status:      common.StatusDeployed,
			Description: "Upgrade complete", Notes: "Thanks"},
		Chart: &chart.Chart{Metadata: &chart.Metadata{Name: "shop", Version: "1.2.3", APIVersion: "v2",
			Dependencies: []*chart.Dependency{{Name: "db", Version: "1.x", Repository: "", Enabled: true}}},
			Values: map[string]any{"not": "covered"}},
		Hooks: []*release.Hook{
			{Name: "migrate", Kind: "Job", Path: "shop/templates/job.yaml", Manifest: "kind: Job",
				Events: []release.HookEvent{release.HookPreUpgrade}, Weight: -5,
				LastRun: release.HookExecution{StartedAt: deployed, CompletedAt: deployed,
					Phase: release.HookPhaseSucceeded}},
			{Name: "check", Kind: "Pod", Events: []release.HookEvent{release.HookTest}},
		},
	}
}

const fullJSON = `{"name":"app","version":3,"info":{"first_deployed":"2026-03-01T12:30:00.123456789Z",` +
	`"last_deployed":"2026-03-01T13:30:00.123456789Z","description":"Upgrade complete","status":"deployed",` +
	`"notes":"Thanks"},"chartMetadata":{"name":"shop","version":"1.2.3","apiVersion":"v2","dependencies":[` +
	`{"name":"db","version":"1.x","repository":"","enabled":true}]},"config":{"a":{"list":["x",null]},"b":1},` +
	`"manifest":"---\n# Source: \u003cx\u003e \u0026 y\n","hooks":[{"name":"migrate","kind":"Job",` +
	`"path":"shop/templates/job.yaml","manifest":"kind: Job","events":["pre-upgrade"],"last_run":` +
	`{"started_at":"2026-03-01T12:30:00.123456789Z","completed_at":"2026-03-01T12:30:00.123456789Z",` +
	`"phase":"Succeeded"},"weight":-5}],"namespace":"team"`

func TestRelease(t *testing.T) {
	onlyTests := full()
	onlyTests.Hooks = onlyTests.Hooks[1:]
	tests := map[string]struct {
		release   *release.Release
		ociDigest string
		want      string
	}{
		"full":     {release: full(), want: fullJSON + "}\n"},
		"from OCI": {release: full(), ociDigest: "sha256:abc", want: fullJSON + `,"ociDigest":"sha256:abc"}` + "\n"},
		"empty": {release: &release.Release{Name: "foo"}, want: `{"name":"foo","version":0,"info":{},` +
			`"chartMetadata":{},"config":null,"manifest":"","hooks":null,"namespace":""}` + "\n"},
		"only test hooks": {release: &release.Release{Name: "foo", Hooks: onlyTests.Hooks, Config: map[string]any{}},
			want: `{"name":"foo","version":0,"info":{},"chartMetadata":{},"config":null,"manifest":"","hooks":null,` +
				`"namespace":""}` + "\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := digest.Release(test.release, test.ociDigest); got != sum(test.want) {
				t.Errorf("the digest is %s, want that of %s", got, test.want)
			}
		})
	}
}

func TestConfig(t *testing.T) {
	tests := map[string]struct {
		values map[string]any
		want   string // the YAML
	}{
		"none":  {want: ""},
		"empty": {values: map[string]any{}, want: ""},
		"sorted by bytes": {
			values: map[string]any{"b10": 1, "b9": 2, "B": true, "a": map[string]any{"z": nil, "rows": []any{
				map[string]any{"port": 80, "name": "x"}, []any{map[string]any{"d": 1, "c": 2}}}}},
			want: "B: true\na:\n  rows:\n  - name: x\n    port: 80\n  - - c: 2\n      d: 1\n  z: null\nb10: 1\nb9: 2\n",
		},
		"numbers and texts": {
			values: map[string]any{"float": 1000000.0, "half": 0.5, "int": int64(7), "text": "7", "yes": "yes",
				"lines": "a\nb\n", "none": map[string]any{}},
			want: "float: 1000000\nhalf: 0.5\nint: 7\nlines: |\n  a\n  b\nnone: {}\ntext: \"7\"\n\"yes\": \"yes\"\n",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := digest.Config(test.values); got != sum(test.want) {
				t.Errorf("the digest is %s, want that of\n%s", got, test.want)
			}
		})
	}
}

// TestConfigByTheDocumentedRule compares the digest of nested values of all kinds with that of YAML that is written
// here by hand: the keys of every map in the order of their bytes, and not in the natural order of the encoder.
func TestConfigByTheDocumentedRule(t *testing.T) {
	values := map[string]any{
		"replicas": 2,
		"zones":    map[string]any{"zone-10": "a", "zone-9": "b", "Zone-1": "c", "5f": "d", "50": "e"},
		"paths":    []any{map[string]any{"10.example.com": "x", "9.example.com": "y"}, "plain", 1.5},
	}
	const text = `paths:
- 10.example.com: x
  9.example.com: "y"
- plain
- 1.5
replicas: 2
zones:
  "50": e
  5f: d
  Zone-1: c
  zone-10: a
  zone-9: b
`
	if got := digest.Config(values); got != sum(text) {
		t.Errorf("the digest is %s, want that of\n%s", got, text)
	}
	if got, want := digest.Config(nil), "sha256:"+fmt.Sprintf("%x", sha256.Sum256(nil)); got != want {
		t.Errorf("the digest of no values is %s, want %s", got, want)
	}
}

func TestSpecFields(t *testing.T) {
	patch := helmv2.Patch{Patch: "- op: add", Target: &meta.Selector{Kind: "Deployment", Name: "a"}}
	renderers := []helmv2.PostRenderer{{Kustomize: &helmv2.Kustomize{Patches: []helmv2.Patch{patch},
		Images: []meta.Image{{Name: "x", NewTag: "1"}}}}}
	metadata := &meta.CommonMetadata{Labels: map[string]string{"b": "1", "a": "2"},
		Annotations: map[string]string{"c": "3"}}
	tests := map[string]struct{ got, want string }{
		"no post-renderers": {got: digest.PostRenderers(nil), want: ""},
		"post-renderers": {got: digest.PostRenderers(renderers),
			want: sum(`[{"kustomize":{"patches":[{"patch":"- op: add",` +
				`"target":{"kind":"Deployment","name":"a"}}],"images":[{"name":"x","newTag":"1"}]}}]` + "\n")},
		"no common metadata": {got: digest.CommonMetadata(nil), want: ""},
		"common metadata": {got: digest.CommonMetadata(metadata),
			want: sum(`{"annotations":{"c":"3"},"labels":{"a":"2","b":"1"}}` + "\n")},
	}
	for name, test := range tests {
		if test.got != test.want {
			t.Errorf("%s: the digest is %s, want %s", name, test.got, test.want)
		}
	}
}
