package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/testenv/sopskey"
)

// fleetFiles is a repository with a Kustomization that applies another one, which has another source.
var fleetFiles = map[string]string{
	"clusters/apps.yaml": `# what the cluster runs
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: apps, namespace: flux-system}
spec:
  interval: 10m
  path: ./clusters/prod
  prune: true
  sourceRef: {kind: GitRepository, name: fleet}
  commonMetadata: {labels: {team: a}}
  postBuild:
    substitute: {region: eu}
    substituteFrom: [{kind: ConfigMap, name: vars}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
`,
	"clusters/prod/kustomization.yaml": "resources: [../../base, shared.yaml, self.yaml]\n",
	"clusters/prod/notes.txt":          "no manifest",
	"base/kustomization.yaml":          "resources: [app.yaml]\n",
	"base/app.yaml":                    configMap + "${region}-${zone:=none}\n",
	"clusters/prod/shared.yaml": `apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: shared, namespace: flux-system}
spec:
  interval: 10m
  path: ./deploy
  prune: true
  targetNamespace: shared
  sourceRef: {kind: OCIRepository, name: shared}
`,
	"clusters/prod/self.yaml": `apiVersion: kustomize.toolkit.fluxcd.io/v1beta2
kind: Kustomization
metadata: {name: self, namespace: flux-system}
spec:
  interval: 10m
  path: ./base
  prune: true
  namePrefix: self-
  sourceRef: {kind: GitRepository, name: fleet}
`,
}

func TestBuildKustomization(t *testing.T) {
	root := write(t, fleetFiles)
	shared := write(t, map[string]string{"deploy/a.yaml": configMap + "shared\n",
		"deploy/left/out.yaml": "not: an object\n"})
	build := []string{"build", "ks", "apps", "--path", filepath.Join(root, "clusters/prod"), "--kustomization-file",
		filepath.Join(root, "clusters/apps.yaml"), "--dry-run"}
	r := run(t, build...).wants(t, exitOK)
	golden(t, "build.yaml", r.out)
	if r.err != "" {
		t.Errorf("unexpected output to standard error:\n%s", r.err)
	}
	deep := append(build, "--recursive")
	run(t, deep...).wants(t, exitOK, "Kustomization 'flux-system/shared' was skipped: its source is not local. Set "+
		"--local-sources "+
		"OCIRepository/flux-system/shared=DIRECTORY")
	deep = append(deep, "--local-sources", "OCIRepository/flux-system/shared="+shared)
	run(t, deep...).wants(t, exitFailed, "Kustomization 'flux-system/shared'", "left/out.yaml")
	r = run(t, append(deep, "--ignore-paths", "left/")...).wants(t, exitOK)
	golden(t, "build-recursive.yaml", r.out)
	if r := run(t, append(build, "--strict-substitute")...).wants(t, exitOK); !strings.Contains(r.out, "eu-none") {
		t.Errorf("a variable with a default is an error:\n%s", r.out)
	}
	if err := os.WriteFile(filepath.Join(root, "base/app.yaml"), []byte(configMap+"${nowhere}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, append(build, "--strict-substitute")...).wants(t, exitFailed, "nowhere", "data.at")
	run(t, build...).wants(t, exitOK)

	if left, err := filepath.Glob(filepath.Join(root, "base/*")); err != nil || len(left) != 2 {
		t.Errorf("the build left files: %v (%v)", left, err)
	}
}

// TestBuildFindsRootOfSource checks which directory replaces the source: the one above spec.path, else the git working
// tree, else --path.
func TestBuildFindsRootOfSource(t *testing.T) {
	root := write(t, fleetFiles)
	file := filepath.Join(root, "clusters/apps.yaml")
	build := func(path string) result {
		t.Helper()
		return run(t, "build", "ks", "apps", "--path", path, "--kustomization-file", file, "--dry-run")
	}
	staging := filepath.Join(root, "clusters/staging")
	if err := os.Rename(filepath.Join(root, "clusters/prod"), staging); err != nil {
		t.Fatal(err)
	}
	build(staging).wants(t, exitFailed, "../../base")
	if err := os.Mkdir(filepath.Join(root, ".git"), 0o700); err != nil {
		t.Fatal(err)
	}
	if r := build(staging).wants(t, exitOK); !strings.Contains(r.out, "eu-none") {
		t.Errorf("the base is missing:\n%s", r.out)
	}
	wrong := filepath.Join(root, "wrong.yaml") // y is a boolean in YAML
	if err := os.WriteFile(wrong, []byte("apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\n"+
		"metadata: {name: apps}\nspec: {interval: 1m, targetNamespace: y}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "build", "ks", "apps", "--path", staging, "--kustomization-file", wrong, "--dry-run").
		wants(t, exitFailed, "spec.targetNamespace")
	build(filepath.Join(root, "none")).wants(t, exitFailed, "no such file")
	run(t, "build", "ks", "none", "--path", staging, "--kustomization-file", file, "--dry-run").
		wants(t, exitFailed, "does not declare Kustomization 'flux-system/none'")
	local := strings.Fields("build ks apps --dry-run --kustomization-file " + file +
		" --local-sources GitRepository/flux-system/fleet=" + root)
	run(t, local...).wants(t, exitFailed, "clusters/prod")
}

func TestBuildMasksEncryptedValues(t *testing.T) {
	s := sopskey.New(t)
	root := write(t, map[string]string{
		"ks.yaml": "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: app}\n" +
			"spec: {interval: 1m, prune: true, path: ./deploy, " +
			"sourceRef: {kind: Bucket, name: app}, decryption: {provider: sops}}\n",
		"deploy/secret.yaml": s.Encrypt("yaml",
			"apiVersion: v1\nkind: Secret\nmetadata:\n  name: app\ndata:\n  password: aHVudGVyMg==\nstringData:\n"+
				"  user: admin\n"),
	})
	golden(t, "build-encrypted.yaml", run(t, "build", "ks", "app", "--path", filepath.Join(root, "deploy"),
		"--kustomization-file", filepath.Join(root, "ks.yaml"), "--dry-run").wants(t, exitOK).out)
}

func TestEnvsubst(t *testing.T) {
	t.Setenv("SLUICE_TEST_REGION", "eu-west")
	in := "at: ${SLUICE_TEST_REGION%-*} ${SLUICE_TEST_NONE:=default} $${kept}\n"
	if r := runWith(t.Context(), in, "envsubst", "--strict"); r.code != exitOK || r.out != "at: eu default ${kept}\n" {
		t.Errorf("got %+v", r)
	}
	if r := runWith(t.Context(), "${SLUICE_TEST_NONE}.", "envsubst"); r.code != exitOK || r.out != "." {
		t.Errorf("got %+v", r)
	}
	runWith(t.Context(), "${SLUICE_TEST_NONE}.", "envsubst", "--strict").
		wants(t, exitFailed, "SLUICE_TEST_NONE is not set")
}
