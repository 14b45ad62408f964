package main

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	commonutil "helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	helmrelease "helm.sh/helm/v4/pkg/release/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/sluice-gitops/sluice/internal/cli/install"
	"github.com/sluice-gitops/sluice/internal/offline/manifest"
	"github.com/sluice-gitops/sluice/internal/process/options"
)

const checkout = "../.."

// render returns the manifests of a release of the chart in namespace 'flux-system', as helm template prints them.
func render(t *testing.T, c *chart.Chart, namespace string, values map[string]any) (string, error) {
	t.Helper()
	if values == nil {
		values = map[string]any{}
	}
	all, err := commonutil.ToRenderValues(c, values, common.ReleaseOptions{Name: "sluice", Namespace: namespace,
		IsInstall: true}, common.DefaultCapabilities)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(c, all)
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		out.WriteString("---\n" + files[name] + "\n")
	}
	return out.String(), err
}

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.LoadDir(filepath.Join(checkout, chartDir))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func decode(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := manifest.Decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// wantEqual compares objects with those of an installation.
func wantEqual(t *testing.T, got []*unstructured.Unstructured, o install.Options, skip ...string) {
	t.Helper()
	want, err := install.Manifests(o)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*unstructured.Unstructured{}
	for _, u := range got {
		if found[key(u)] != nil {
			t.Errorf("%s is there twice", key(u))
		}
		found[key(u)] = u
	}
	for _, u := range want {
		if slices.Contains(skip, u.GetKind()) {
			continue
		}
		other := found[key(u)]
		delete(found, key(u))
		if other == nil {
			t.Errorf("%s is missing", key(u))
			continue
		}
		// as JSON, because the manifests of an installation have values of Go types
		a, b := encoded(t, u), encoded(t, other)
		if a != b {
			t.Errorf("%s differs:\nwant %.3000s\ngot  %.3000s", key(u), a, b)
		}
	}
	for name := range found {
		t.Errorf("%s is not part of an installation", name)
	}
}

func encoded(t *testing.T, u *unstructured.Unstructured) string {
	t.Helper()
	b, err := json.Marshal(u.Object)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// rendered returns the objects of a release. Its exceptions from an installation: it has no Namespace, because the
// namespace belongs to the user of Helm, and its definitions are annotated to be kept.
func rendered(t *testing.T, c *chart.Chart, namespace string, values map[string]any) []*unstructured.Unstructured {
	t.Helper()
	text, err := render(t, c, namespace, values)
	if err != nil {
		t.Fatal(err)
	}
	objects := decode(t, text)
	for _, u := range objects {
		annotations := u.GetAnnotations()
		if u.GetKind() != "CustomResourceDefinition" {
			continue
		}
		if annotations[resourcePolicy] != "keep" {
			t.Errorf("%s would be deleted with the release", key(u))
		}
		delete(annotations, resourcePolicy)
		u.SetAnnotations(annotations)
	}
	return objects
}

func TestChartEqualsInstall(t *testing.T) {
	c := load(t)
	type values = map[string]any
	tests := map[string]struct {
		values values
		change func(*install.Options)
	}{
		"default":         {change: func(*install.Options) {}},
		"other namespace": {change: func(o *install.Options) { o.Namespace = "gitops" }},
		"domain": {values{"clusterDomain": "a.example"},
			func(o *install.Options) { o.ClusterDomain = "a.example" }},
		"log level":      {values{"logLevel": "debug"}, func(o *install.Options) { o.LogLevel = "debug" }},
		"network policy": {values{"networkPolicy": false}, func(o *install.Options) { o.NetworkPolicy = false }},
		"one namespace":  {values{"watchAllNamespaces": false}, func(o *install.Options) { o.WatchAll = false }},
		"profile":        {values{"profile": "multi-tenant"}, func(o *install.Options) { o.Profile = "multi-tenant" }},
		"several": {values{"profile": "multi-tenant", "logLevel": "error", "watchAllNamespaces": false},
			func(o *install.Options) { o.Profile, o.LogLevel, o.WatchAll = "multi-tenant", "error", false }},
		"image": {values{"image": values{"repository": "a.example/b", "tag": "v2", "digest": "sha256:" +
			strings.Repeat("0", 64), "pullSecrets": []any{values{"name": "pull"}}}}, func(o *install.Options) {
			o.Image, o.PullSecret = "a.example/b:v2@sha256:"+strings.Repeat("0", 64), "pull"
		}},
		"tolerations": {values{"tolerations": []any{values{"key": "a", "operator": "Exists"}}},
			func(o *install.Options) { o.TolerationKeys = []string{"a"} }},
		"ui": {values{"ui": values{"url": "https://a.example"}},
			func(o *install.Options) { o.UI = install.UI{URL: "https://a.example"} }},
		"ui without policy": {values{"networkPolicy": false, "ui": values{"url": "http://localhost:9095"}},
			func(o *install.Options) {
				o.NetworkPolicy, o.UI = false, install.UI{URL: "http://localhost:9095"}
			}},
		"ui with login": {values{"profile": "multi-tenant", "ui": values{"url": "https://a.example",
			"tokenLogin": false, "oidc": values{"issuer": "https://b.example", "clientID": "c", "clientSecret": "d",
				"usernameClaim": "email", "usernamePrefix": "u:", "groupsClaim": "g", "groupsPrefix": "oidc: {"}}},
			func(o *install.Options) {
				o.Profile, o.UI = "multi-tenant", install.UI{URL: "https://a.example", Issuer: "https://b.example",
					ClientID: "c", ClientSecret: "d", UsernameClaim: "email", UsernamePrefix: "u:", GroupsClaim: "g",
					GroupsPrefix: "oidc: {", NoTokenLogin: true}
			}},
		"ui with reviews": {values{"ui": values{"url": "https://a.example", "reviewSecret": "r"}},
			func(o *install.Options) { o.UI = install.UI{URL: "https://a.example", ReviewSecret: "r"} }},
		"ui with agents": {values{"ui": values{"url": "https://a.example", "mcpURL": "https://m.example"}},
			func(o *install.Options) { o.UI = install.UI{URL: "https://a.example", MCPURL: "https://m.example"} }},
		"hub": {values{"hub": values{"url": "https://a.example"}},
			func(o *install.Options) { o.Hub = install.Hub{URL: "https://a.example"} }},
		"hub with a certificate": {values{"logLevel": "debug", "profile": "multi-tenant",
			"hub": values{"url": "https://a.example", "tlsSecret": "b"}}, func(o *install.Options) {
			o.LogLevel, o.Profile, o.Hub = "debug", "multi-tenant", install.Hub{URL: "https://a.example",
				TLSSecret: "b"}
		}},
		"hub with a login provider": {values{"hub": values{"url": "https://a.example"}, "ui": values{
			"tokenLogin": false, "oidc": values{"issuer": "https://b.example", "clientID": "c", "clientSecret": "d"}}},
			func(o *install.Options) {
				o.Hub = install.Hub{URL: "https://a.example"}
				o.UI = install.UI{Issuer: "https://b.example", ClientID: "c", ClientSecret: "d", NoTokenLogin: true}
			}},
		"two components": {values{"components": []any{options.HelmController, options.SourceController}},
			func(o *install.Options) { o.Components = []string{options.SourceController, options.HelmController} }},
	}
	for _, component := range options.AllControllers {
		test := tests["default"]
		test.values = values{"components": []any{component}}
		test.change = func(o *install.Options) { o.Components = []string{component} }
		tests[component] = test
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := install.Default("latest")
			test.change(&o)
			wantEqual(t, rendered(t, c, o.Namespace, test.values), o, "Namespace")
		})
	}
}

func TestChartEqualsInstallOfReplicas(t *testing.T) {
	c := load(t)
	type values = map[string]any
	for name, test := range map[string]struct {
		values values
		change func(*install.Options)
	}{
		"replicas": {values{"storageBackend": values{"endpoint": "https://a.example", "bucket": "b"}},
			func(o *install.Options) { o.Backend = install.Backend{Endpoint: "https://a.example", Bucket: "b"} }},
		"one replica": {values{"replicas": 1, "components": []any{options.HelmController},
			"storageBackend": values{"endpoint": "https://a.example", "bucket": "b", "secret": "c"}},
			func(o *install.Options) {
				o.Replicas, o.Components = 1, []string{options.HelmController}
				o.Backend = install.Backend{Endpoint: "https://a.example", Bucket: "b", Secret: "c"}
			}},
		"replicas of a hub": {values{"hub": values{"url": "https://a.example"}, "storageBackend": values{
			"endpoint": "https://a.example", "bucket": "b", "prefix": "p", "secret": "c"}},
			func(o *install.Options) {
				o.Hub = install.Hub{URL: "https://a.example"}
				o.Backend = install.Backend{Endpoint: "https://a.example", Bucket: "b", Prefix: "p", Secret: "c"}
			}},
		"five replicas": {values{"replicas": 5, "profile": "multi-tenant", "storageBackend": values{
			"endpoint": "http://a", "bucket": "b", "prefix": "p/q", "region": "r", "secret": "c"}},
			func(o *install.Options) {
				o.Replicas, o.Profile = 5, "multi-tenant"
				o.Backend = install.Backend{Endpoint: "http://a", Bucket: "b", Prefix: "p/q", Region: "r", Secret: "c"}
			}},
		"shards": {values{"autoShards": true, "storageBackend": values{"endpoint": "https://a.example", "bucket": "b"}},
			func(o *install.Options) {
				o.AutoShards, o.Backend = true, install.Backend{Endpoint: "https://a.example", Bucket: "b"}
			}},
		"autoscaler": {values{"autoShards": true, "replicas": 2, "maxReplicas": 7, "logLevel": "debug",
			"storageBackend": values{"endpoint": "https://a.example", "bucket": "b"}},
			func(o *install.Options) {
				o.AutoShards, o.Replicas, o.MaxReplicas, o.LogLevel = true, 2, 7, "debug"
				o.Backend = install.Backend{Endpoint: "https://a.example", Bucket: "b"}
			}},
	} {
		t.Run(name, func(t *testing.T) {
			o := install.Default("latest")
			test.change(&o)
			wantEqual(t, rendered(t, c, o.Namespace, test.values), o, "Namespace")
		})
	}
}

func TestChartHasResourcesAndArguments(t *testing.T) {
	text, err := render(t, load(t), "flux-system", map[string]any{"extraArgs": []any{"--concurrent=8", "--a=b: {c"},
		"resources": map[string]any{"limits": map[string]any{"memory": "3Gi"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range decode(t, text) {
		if u.GetKind() != "Deployment" {
			continue
		}
		c := firstContainer(u)
		args, _, _ := unstructured.NestedStringSlice(c, "args")
		if !slices.Contains(args, "--concurrent=8") || !slices.Contains(args, "--a=b: {c") {
			t.Errorf("the arguments are %q", args)
		}
		if limit, _, _ := unstructured.NestedString(c, "resources", "limits", "memory"); limit != "3Gi" {
			t.Errorf("the limit of memory is %s", limit)
		}
	}
}

func TestChartRefusesWrongValues(t *testing.T) {
	c := load(t)
	for name, values := range map[string]map[string]any{
		"component":    {"components": []any{"other"}},
		"logLevel":     {"logLevel": "loud"},
		"profile":      {"profile": "other"},
		"digest":       {"image": map[string]any{"digest": "latest"}},
		"typo":         {"networkPolicies": false},
		"domain":       {"clusterDomain": "a b"},
		"ui over HTTP": {"ui": map[string]any{"url": "http://a.example"}},
		"ui path":      {"ui": map[string]any{"url": "https://a.example/b"}},
		"no ui":        {"ui": map[string]any{"oidc": map[string]any{"issuer": "https://a.example"}}},
		"no client": {"ui": map[string]any{"url": "https://a.example",
			"oidc": map[string]any{"issuer": "https://a.example"}}},
		"no issuer": {"ui": map[string]any{"url": "https://a.example",
			"oidc": map[string]any{"clientSecret": "a"}}},
		"no backend":           {"replicas": 2},
		"no bucket for shards": {"autoShards": true},
		"autoscaler of standbys": {"maxReplicas": 5,
			"storageBackend": map[string]any{"endpoint": "http://a", "bucket": "b"}},
		"autoscaler that adds none": {"autoShards": true, "maxReplicas": 3,
			"storageBackend": map[string]any{"endpoint": "http://a", "bucket": "b"}},
		"no URL of the hub": {"hub": map[string]any{"tlsSecret": "a"}},
		"no endpoint":       {"storageBackend": map[string]any{"bucket": "b"}},
		"no bucket":         {"storageBackend": map[string]any{"endpoint": "https://a.example"}},
		"no login":          {"ui": map[string]any{"url": "https://a.example", "tokenLogin": false}},
	} {
		if _, err := render(t, c, "flux-system", values); err == nil {
			t.Errorf("%s: a wrong value was accepted", name)
		}
	}
}

// TestReleaseFitsIntoSecret checks that Helm can store a release: the API server limits a Secret to 1 MiB.
func TestReleaseFitsIntoSecret(t *testing.T) {
	c := load(t)
	text, err := render(t, c, "flux-system", nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(&helmrelease.Release{Name: "sluice", Chart: c, Manifest: text})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression) // as Helm does
	if _, err := w.Write(b); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	size := base64.StdEncoding.EncodedLen(out.Len())
	t.Logf("a release takes %d bytes", size)
	if size > 3<<18 {
		t.Errorf("a release takes %d bytes, of 1 MiB", size)
	}
}

// TestBaseEqualsInstall builds config/default as kustomize build does.
func TestBaseEqualsInstall(t *testing.T) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(),
		filepath.Join(checkout, "config", "default"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := built.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, decode(t, string(text)), install.Default("latest"))
}

// TestMonitoringFindsPods builds the two bases for the operator of Prometheus.
func TestMonitoringFindsPods(t *testing.T) {
	for dir, want := range map[string]string{"monitoring": "PodMonitor", "servicemonitor": "Service ServiceMonitor"} {
		built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(),
			filepath.Join(checkout, "config", dir))
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for _, r := range built.Resources() {
			switch kind := r.GetKind(); kind {
			case "PrometheusRule", "ConfigMap":
			default:
				found = append(found, kind)
			}
			if r.GetNamespace() != install.DefaultNamespace {
				t.Errorf("%s is in namespace '%s'", r.GetKind(), r.GetNamespace())
			}
		}
		slices.Sort(found)
		if got := strings.Join(found, " "); got != want || len(built.Resources()) < 3 {
			t.Errorf("config/%s has %s, want %s", dir, got, want)
		}
	}
}

// TestGeneratedFilesAreUpToDate generates into an empty directory and compares.
func TestGeneratedFilesAreUpToDate(t *testing.T) {
	dir := t.TempDir()
	if err := run(dir); err != nil {
		t.Fatal(err)
	}
	generated := 0
	err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		generated++
		want, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		got, err := os.ReadFile(filepath.Join(checkout, relative))
		if !bytes.Equal(got, want) {
			t.Errorf("%s is stale: run make generate (%v)", relative, err)
		}
		return nil
	})
	if err != nil || generated < 20 {
		t.Fatal(err, generated)
	}
}

func TestBracesAreEscaped(t *testing.T) {
	text := "a {{ b }} {{- c -}} {{{{"
	c := &chart.Chart{Metadata: &chart.Metadata{Name: "a", Version: "1.0.0", APIVersion: "v2"},
		Templates: []*common.File{{Name: "templates/a.yaml", Data: []byte(escape(text))}}}
	got, err := render(t, c, "a", nil)
	if err != nil || got != "---\n"+text+"\n" {
		t.Errorf("got %q, %v", got, err)
	}
}
