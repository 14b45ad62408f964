package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/kustomize/kyaml/openapi"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build"
)

// overlays is a set of apps, each with a base of four objects and an overlay that patches it.
func overlays(apps int) map[string]string {
	files := map[string]string{}
	for i := range apps {
		base, prod := fmt.Sprintf("app-%d/base/", i), fmt.Sprintf("app-%d/prod/", i)
		files[base+"kustomization.yaml"] = "resources: [deployment.yaml, service.yaml, account.yaml, ingress.yaml]\n" +
			"labels: [{pairs: {app: web}, includeSelectors: true}]\n"
		files[base+"deployment.yaml"] = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n" +
			"spec: {replicas: 0, template: {spec: {serviceAccountName: web, containers: [{name: one, image: " +
			"nginx:1}, {name: two, image: busybox:1}]}}}\n"
		files[base+"service.yaml"] = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n" +
			"spec: {ports: [{port: 80}]}\n"
		files[base+"account.yaml"] = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: web}\n"
		files[base+"ingress.yaml"] = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: web}\n" +
			"spec: {rules: [{host: web.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: " +
			"{name: web, port: {number: 80}}}}]}}]}\n"
		files[prod+"kustomization.yaml"] = fmt.Sprintf("resources: [../base]\nnamespace: ns-%d\nnamePrefix: prod-\n"+
			"patches: [{path: patch.yaml}]\nimages: [{name: nginx, newTag: '2'}]\n", i)
		files[prod+"patch.yaml"] = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n" +
			"spec: {template: {spec: {containers: [{name: two, image: patched:1}]}}}\n"
	}
	return files
}

// BenchmarkBuildRatio builds the same overlays as `kustomize build` does, over files on the disk and with the
// schema loaded once, alternately, so that load on the machine affects both.
func BenchmarkBuildRatio(b *testing.B) {
	files := overlays(builtApps)
	dir, tree := b.TempDir(), artifact.FromMap(files)
	for name, content := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	options := krusty.MakeDefaultOptions()
	options.LoadRestrictions = types.LoadRestrictionsNone
	var ours, theirs time.Duration
	kustomize := func(app int) {
		began := time.Now()
		m, err := krusty.MakeKustomizer(options).
			Run(filesys.MakeFsOnDisk(), filepath.Join(dir, fmt.Sprintf("app-%d", app), "prod"))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := m.AsYaml(); err != nil {
			b.Fatal(err)
		}
		theirs += time.Since(began)
	}
	sluice := func(app int) {
		began := time.Now()
		if _, err := build.Build(b.Context(),
			build.Request{Tree: tree, Path: fmt.Sprintf("app-%d/prod", app)}); err != nil {
			b.Fatal(err)
		}
		ours += time.Since(began)
	}
	const rounds = 4
	kustomize(0) // loads the schema
	sluice(0)
	t := newTable(fmt.Sprintf("Build of %d overlays of four objects", builtApps), "", "µs an app", "x kustomize")
	for b.Loop() {
		ours, theirs = 0, 0
		for app := range rounds * builtApps {
			kustomize(app % builtApps)
			sluice(app % builtApps)
		}
		const apps = rounds * builtApps
		t.row("kustomize build, schema loaded once", float64(theirs.Microseconds())/apps, 1.0)
		t.row("Sluice", float64(ours.Microseconds())/apps, ours.Seconds()/theirs.Seconds())
		b.ReportMetric(ours.Seconds()/theirs.Seconds(), "x-kustomize")
	}
}

const builtApps = 50

// BenchmarkKustomizeBuild is the yardstick: what `kustomize build` does for each app, with the schema loaded
// once. The command loads it each time.
func BenchmarkKustomizeBuild(b *testing.B) {
	for _, name := range []string{"SchemaOnce", "SchemaEachTime"} {
		b.Run(name, func(b *testing.B) {
			disk := filesys.MakeFsInMemory()
			for name, content := range overlays(builtApps) {
				if err := disk.WriteFile("/"+name, []byte(content)); err != nil {
					b.Fatal(err)
				}
			}
			options := krusty.MakeDefaultOptions()
			options.LoadRestrictions = types.LoadRestrictionsNone
			for b.Loop() {
				for i := range builtApps {
					if name == "SchemaEachTime" {
						openapi.ResetOpenAPI()
					}
					m, err := krusty.MakeKustomizer(options).Run(disk, fmt.Sprintf("/app-%d/prod", i))
					if err != nil {
						b.Fatal(err)
					}
					if _, err := m.AsYaml(); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*builtApps), "µs/app")
		})
	}
}

// BenchmarkBuild builds the same apps: one after another, side by side, and with substitution.
func BenchmarkBuild(b *testing.B) {
	tree := artifact.FromMap(overlays(builtApps))
	for name, c := range map[string]struct {
		workers int
		change  func(*build.Request)
	}{
		"OneByOne":   {workers: 1, change: func(*build.Request) {}},
		"SideBySide": {workers: runtime.NumCPU(), change: func(*build.Request) {}},
		"Substituting": {workers: 1, change: func(r *build.Request) {
			r.Substitution = &build.Substitution{Variables: map[string]string{"x": "y"}, Strict: true}
		}},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				next := make(chan int)
				var wg sync.WaitGroup
				for range c.workers {
					wg.Go(func() {
						for i := range next {
							req := build.Request{Tree: tree, Path: fmt.Sprintf("app-%d/prod", i)}
							c.change(&req)
							if _, err := build.Build(b.Context(), req); err != nil {
								b.Error(err)
							}
						}
					})
				}
				for i := range builtApps {
					next <- i
				}
				close(next)
				wg.Wait()
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*builtApps), "µs/app")
		})
	}
}

// BenchmarkBuildUnchanged asks the traces whether a new revision, which touches one app, calls for any other build.
func BenchmarkBuildUnchanged(b *testing.B) {
	files := overlays(builtApps)
	before := artifact.FromMap(files)
	var traces []*build.Trace
	for i := range builtApps {
		result, err := build.Build(b.Context(), build.Request{Tree: before, Path: fmt.Sprintf("app-%d/prod", i)})
		if err != nil {
			b.Fatal(err)
		}
		traces = append(traces, result.Trace)
	}
	files["app-7/prod/patch.yaml"] += "# changed\n"
	after := artifact.FromMap(files)
	changed := 0
	for b.Loop() {
		changed = 0
		for _, t := range traces {
			if !t.Unchanged(after) {
				changed++
			}
		}
	}
	if changed != 1 {
		b.Errorf("%d apps would be built, want 1", changed)
	}
	b.ReportMetric(float64(changed), "builds/commit")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*builtApps)/1000, "µs/app")
}
