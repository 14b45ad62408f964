package mirror

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/artifact"
)

// repository is a repository with an object of each kind that refers to something.
var repository = map[string]string{
	"cluster/sources.yaml": `
apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: app, namespace: flux-system}
spec: {url: oci://ghcr.io/org/manifests, ref: {semver: ">=1.0.0"}, interval: 1m}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: web, namespace: flux-system}
spec: {url: https://charts.example.com/stable, interval: 1m}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: oci, namespace: flux-system}
spec: {url: "oci://ghcr.io/org/charts", type: oci}
---
apiVersion: image.toolkit.fluxcd.io/v1
kind: ImageRepository
metadata: {name: podinfo, namespace: flux-system}
spec: {image: ghcr.io/org/podinfo, interval: 1m}
`,
	"cluster/releases.yaml": `
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: redis, namespace: apps}
spec:
  interval: 1m
  chart: {spec: {chart: redis, version: 1.x, sourceRef: {kind: HelmRepository, name: web, namespace: flux-system}}}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmChart
metadata: {name: proxy, namespace: flux-system}
spec: {chart: proxy, version: 2.0.0, interval: 1m, sourceRef: {kind: HelmRepository, name: oci}}
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: lost, namespace: apps}
spec:
  interval: 1m
  chart: {spec: {chart: lost, sourceRef: {kind: HelmRepository, name: absent}}}
`,
	"cluster/kustomization.yaml": "resources: [sources.yaml, releases.yaml, apps.yaml]\n",
	"cluster/apps.yaml": `
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: apps, namespace: flux-system}
spec:
  interval: 1m
  prune: true
  path: ./apps
  sourceRef: {kind: GitRepository, name: flux-system}
`,
	"apps/kustomization.yaml": "resources: [../base]\nimages: [{name: app, newName: ghcr.io/org/app, newTag: v2}]\n",
	"base/kustomization.yaml": "resources: [deployment.yaml]\n",
	"base/deployment.yaml": `
apiVersion: apps/v1
kind: Deployment
metadata: {name: app}
spec:
  selector: {matchLabels: {app: app}}
  template:
    metadata: {labels: {app: app}}
    spec:
      initContainers: [{name: wait, image: busybox}]
      containers: [{name: app, image: app}]
`,
	"jobs/job.yaml": `
apiVersion: batch/v1
kind: CronJob
metadata: {name: backup}
spec:
  schedule: "@daily"
  jobTemplate:
    spec: {template: {spec: {containers: [{name: c, image: "localhost:5000/tools/backup:1@` + digest1 + `"}]}}}
`,
	"charts/app/templates/deployment.yaml": "apiVersion: apps/v1\nkind: {{ .Kind }}\n",
	"README.md":                            "image: none\n",
}

const digest1 = "sha256:1111111111111111111111111111111111111111111111111111111111111111"

func tree(t *testing.T, files map[string]string) *artifact.Tree {
	t.Helper()
	all := map[string]artifact.File{}
	for name, content := range files {
		all[name] = artifact.File{Mode: 0o644, Data: []byte(content)}
	}
	tree, err := artifact.NewMemory(all)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// find returns what files refer to, and the warnings.
func find(t *testing.T, files map[string]string) (*Found, string) {
	t.Helper()
	var warnings []string
	found, err := Find(t.Context(), tree(t, files), func(m string) { warnings = append(warnings, m) })
	if err != nil {
		t.Fatal(err)
	}
	return found, strings.Join(warnings, "\n")
}

func TestFind(t *testing.T) {
	found, warnings := find(t, repository)
	var got []string
	for _, item := range found.Items {
		got = append(got, item.Kind+" "+item.Name()+" <- "+strings.Join(item.UsedBy, ", "))
	}
	want := []string{
		"artifact ghcr.io/org/manifests >=1.0.0 <- OCIRepository/app in cluster/sources.yaml",
		"chart oci://ghcr.io/org/charts/proxy 2.0.0 <- HelmChart/proxy in cluster/releases.yaml",
		"image docker.io/library/busybox:latest <- Deployment/app in apps",
		"image ghcr.io/org/app:v2 <- Deployment/app in apps",
		"image localhost:5000/tools/backup:1@" + digest1 + " <- CronJob/backup in jobs/job.yaml",
		"tags ghcr.io/org/podinfo <- ImageRepository/podinfo in cluster/sources.yaml",
		"web chart https://charts.example.com/stable/redis 1.x <- HelmRelease/redis in cluster/releases.yaml",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	missing := "chart 'lost' of HelmRelease/lost in cluster/releases.yaml is left out: HelmRepository 'absent'"
	if !strings.Contains(warnings, missing) {
		t.Errorf("warnings: %s", warnings)
	}
}

func TestFindWarnsAboutWhatItCannotRead(t *testing.T) {
	found, warnings := find(t, map[string]string{
		"k.yaml":                    strings.ReplaceAll(repository["cluster/apps.yaml"], "./apps", "./broken"),
		"broken/kustomization.yaml": "resources: [absent.yaml]\n",
		"broken/pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n" +
			"spec: {containers: [{image: '${REGISTRY}/app'}, {image: nginx}]}\n",
	})
	if len(found.Items) != 1 || found.Items[0].Name() != "docker.io/library/nginx:latest" {
		t.Errorf("found %+v", found.Items)
	}
	for _, want := range []string{"Kustomization 'apps' cannot be built",
		"an image of Pod/p in broken/pod.yaml is left out"} {
		if !strings.Contains(warnings, want) {
			t.Errorf("warnings lack %q:\n%s", want, warnings)
		}
	}
}

func TestRewriteIsAComponent(t *testing.T) {
	found, _ := find(t, repository)
	var out strings.Builder
	if err := found.Rewrite(&out, "registry.internal/mirror"); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"mirror/kustomization.yaml": out.String()}
	for name, content := range repository {
		files[name] = content
	}
	files["cluster/kustomization.yaml"] += "components: [../mirror]\n"
	files["all.yaml"] = strings.ReplaceAll(repository["cluster/apps.yaml"], "./apps", "./cluster")
	files["all.yaml"] = strings.ReplaceAll(files["all.yaml"], "name: apps", "name: all")
	delete(files, "jobs/job.yaml")
	rewritten, warnings := find(t, files)
	if strings.Contains(warnings, "cannot be built") {
		t.Fatalf("the component is not valid: %s\n%s", warnings, out.String())
	}
	for _, item := range rewritten.Items {
		if !strings.HasPrefix(item.Repository, "registry.internal/mirror/") {
			t.Errorf("%s %s still names another registry", item.Kind, item.Name())
		}
	}
	var parsed component
	if err := yaml.Unmarshal([]byte(out.String()), &parsed); err != nil || len(parsed.Patches) != 5 {
		t.Errorf("%d patches: %v\n%s", len(parsed.Patches), err, out.String())
	}
}

func TestTarget(t *testing.T) {
	for repository, want := range map[string]string{
		"ghcr.io/org/app":          "registry.internal/mirror/ghcr.io/org/app",
		"localhost:5000/app":       "registry.internal/mirror/localhost-5000/app",
		"docker.io/library/alpine": "registry.internal/mirror/docker.io/library/alpine",
	} {
		if got, err := Target("registry.internal/mirror", repository); err != nil || got != want {
			t.Errorf("%s: %s, %v", repository, got, err)
		}
	}
	for _, repository := range []string{"", "ghcr.io", "ghcr.io/", "ghcr.io/../x", "/x", "ghcr.io/A", "h/a:b",
		"h/a@" + digest1} {
		if got, err := Target("registry.internal/mirror", repository); err == nil {
			t.Errorf("%q has the target %s", repository, got)
		}
	}
}
