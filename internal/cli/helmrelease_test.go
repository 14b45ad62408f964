package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// shop are the files of a chart with a hook, a definition and a value that must stay secret.
var shop = map[string]string{
	"Chart.yaml":  "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
	"values.yaml": "color: red\nreplicas: 1\n",
	"crds/widgets.yaml": "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n" +
		"  name: widgets.shop.example.com\nspec:\n  group: shop.example.com\n  scope: Namespaced\n" +
		"  names: {kind: Widget, plural: widgets, singular: widget}\n  versions:\n  - name: v1\n    served: true\n" +
		"    storage: true\n    schema: {openAPIV3Schema: {type: object}}\n",
	"templates/config.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-config\n" +
		"data:\n  color: {{ .Values.color }}\n  url: https://me:{{ .Values.login.password }}@db\n" +
		"  encoded: {{ .Values.login.password | b64enc }}\n  first: {{ trunc 4 .Values.login.password }}\n",
	"templates/secret.yaml": "apiVersion: v1\nkind: Secret\nmetadata:\n  name: {{ .Release.Name }}-login\n" +
		"stringData:\n  password: {{ .Values.login.password }}\n",
	"templates/account.yaml": "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n" +
		"  name: {{ .Release.Name }}\n" +
		"  annotations: {helm.sh/hook: pre-install, helm.sh/hook-delete-policy: hook-succeeded}\n",
}

// directory writes files to a new directory.
func directory(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestHelmReleaseCommands runs all commands on a release, with real controllers and a git server.
func TestHelmReleaseCommands(t *testing.T) {
	c, namespace := withControllers(t)
	git := testenv.NewGit(t)
	files := map[string]string{}
	for name, content := range shop {
		files["charts/shop/"+name] = content
	}
	git.Commit("app", files)
	repository := &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "app"}}
	repository.Spec = sourcev1.GitRepositorySpec{URL: git.URL + "/app.git", Interval: meta.Duration{Duration: 3600e9},
		Reference: &sourcev1.GitRepositoryRef{Branch: "main"}}
	login := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "login"},
		StringData: map[string]string{"values.yaml": "login: {password: hunter2}\n"}}
	for _, o := range []client.Object{repository, login} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	in := func(args ...string) result { return at(t, append(args, "-n", namespace)...) }
	in("reconcile", "source", "git", "app").wants(t, exitOK)
	in("create", "helmrelease", "app", "--source", "GitRepository/app", "--chart", "charts/shop", "--values-from",
		"Secret/login", "--values", file(t, "values.yaml", "color: blue\n"), "--interval", "1h").
		wants(t, exitOK, "app' is ready")
	defer func() {
		in("delete", "helmrelease", "app", "--silent").wants(t, exitOK)
		in("delete", "source", "git", "app", "--silent").wants(t, exitOK)
	}()
	checkReleased(t, in)
	checkRendered(t, in)
	checkDiff(t, in)
	checkForced(t, c, namespace, in)
}

// leaks reports whether a command printed the password of the release, also in the forms that its templates print.
func leaks(r result) bool {
	for _, form := range []string{"hunter2", "first: hunt", "aHVudGVyMg", "SFVOVEVSMg"} {
		if strings.Contains(r.out+r.err, form) {
			return true
		}
	}
	return false
}

// checkReleased checks the commands that show the release.
func checkReleased(t *testing.T, in func(args ...string) result) {
	t.Helper()
	for command, wants := range map[string][]string{
		"get helmreleases":     {"app 1.0.0 False True"},
		"get all":              {"helmrelease/app 1.0.0 True Helm install succeeded"},
		"get hr --show-source": {"HelmChart/"},
		"tree hr app":          {"HelmRelease/", "ConfigMap/", "app-config", "Secret/", "app-login"},
		"trace configmap app-config": {"Managed by: HelmRelease/", "Revision: 1.0.0", "HelmChart/",
			"GitRepository/"},
		"stats":                                     {"HelmRelease 1 0 0 -"},
		"export helmrelease app":                    {"kind: HelmRelease", "color: blue"},
		"debug hr app --show-status":                {"lastAttemptedRevision: 1.0.0"},
		"debug hr app --show-history":               {"chartName: shop"},
		"debug hr app --show-values":                {"color: blue", "password: '***'"},
		"debug hr app --show-values --show-secrets": {"password: hunter2"},
		"debug hr app --show-origins": {"color spec.values", "login.password Secret '",
			"key 'values.yaml'"},
		"debug helmrelease app --show-origins": {"VALUE FROM"},
	} {
		r := in(strings.Fields(command)...).wants(t, exitOK)
		out := strings.Join(strings.Fields(r.out), " ")
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("%s: the output lacks %q:\n%s", command, want, r.out)
			}
		}
		if !strings.Contains(command, "secrets") && leaks(r) {
			t.Errorf("%s shows a secret:\n%s", command, r.out)
		}
	}
	testenv.Eventually(t, "the event is written", func() error {
		r := in("events", "--for", "HelmRelease/app").wants(t, exitOK)
		if leaks(r) {
			t.Fatalf("the events show a secret:\n%s", r.out)
		}
		return r.shows("InstallSucceeded")
	})
	in("debug", "hr", "app").wants(t, exitUsage, "nothing to show")
}

// checkRendered checks `build helmrelease`, with and without a cluster.
func checkRendered(t *testing.T, in func(args ...string) result) {
	t.Helper()
	r := in("build", "helmrelease", "app").wants(t, exitOK)
	built := r.out
	for _, want := range []string{"name: widgets.shop.example.com", "helm.sh/hook: pre-install", "color: blue",
		"url: '***'", "encoded: '***'", "first: '***'", "password: '***'", "app.kubernetes.io/managed-by: Helm",
		"helm.toolkit.fluxcd.io/name: app"} {
		if !strings.Contains(built, want) {
			t.Errorf("the build lacks %q:\n%s", want, built)
		}
	}
	if leaks(r) {
		t.Errorf("the build shows a secret:\n%s", built)
	}
	if r = in("build", "hr", "app", "--show-secrets").wants(t, exitOK); !strings.Contains(r.out, "me:hunter2@db") {
		t.Errorf("--show-secrets hides secrets:\n%s", r.out)
	}
	declared := declare(t, "local", "{color: green, login: {password: x}}")
	chart := directory(t, shop)
	offline := run(t, "build", "hr", "local", "--path", chart, "--helmrelease-file", declared, "--dry-run").
		wants(t, exitOK)
	if !strings.Contains(offline.out, "color: green") || !strings.Contains(offline.out, "name: local-config") {
		t.Errorf("the build without a cluster is\n%s", offline.out)
	}
	run(t, "build", "hr", "local", "--path", chart, "--dry-run").wants(t, exitUsage, "--helmrelease-file")
	run(t, "build", "hr", "other", "--path", chart, "--helmrelease-file", declared, "--dry-run").
		wants(t, exitFailed, "does not declare HelmRelease")
	in("build", "hr", "app", "--path", t.TempDir()).wants(t, exitFailed, "cannot load the chart", "Chart.yaml")
	in("build", "hr", "none").wants(t, exitFailed, "none' not found")
}

// declare writes a file that declares a HelmRelease.
func declare(t *testing.T, name, values string) string {
	t.Helper()
	return file(t, name+".yaml",
		"apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: "+name+"}\n"+
			"spec:\n  interval: 1h\n  chartRef: {kind: OCIRepository, name: none}\n  values: "+values+"\n")
}

// checkDiff checks `diff helmrelease` with the chart of the cluster and with changed local ones.
func checkDiff(t *testing.T, in func(args ...string) result) {
	t.Helper()
	if r := in("diff", "hr", "app").wants(t, exitOK, "no changes"); r.out != "" {
		t.Errorf("there are differences to what was released:\n%s", r.out)
	}
	changed := map[string]string{}
	for name, content := range shop {
		changed[name] = content
	}
	delete(changed, "templates/secret.yaml")
	changed["templates/more.yaml"] = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: more}\n"
	changed["templates/config.yaml"] = strings.ReplaceAll(shop["templates/config.yaml"], "b64enc", "upper | b64enc") +
		"  size: large\n"
	r := in("diff", "helmrelease", "app", "--path", directory(t, changed)).
		wants(t, exitFailed, "3 objects would change")
	for _, want := range []string{"+ ConfigMap/", "/more created", "~ ConfigMap/", "app-config configured",
		"size: large", "- Secret/", "app-login deleted"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("the diff lacks %q:\n%s", want, r.out)
		}
	}
	if leaks(r) {
		t.Errorf("the diff shows a secret:\n%s", r.out)
	}
	changed["templates/config.yaml"] = "{{ fail \"no region\" }}"
	in("diff", "hr", "app", "--path", directory(t, changed)).
		wants(t, exitUsage, "HelmRelease '", "execution error at (shop/templates/config.yaml:1:3): no region")
	declared := declare(t, "new", "{login: {password: hunter3}}")
	chart := directory(t, shop)
	in("diff", "hr", "new", "--path", chart, "--helmrelease-file", declared).wants(t, exitUsage, "--ignore-not-found")
	r = in("diff", "hr", "new", "--path", chart, "--helmrelease-file", declared, "--ignore-not-found").
		wants(t, exitFailed, "2 objects would change")
	if !strings.Contains(r.out, "new-login created") {
		t.Errorf("the diff of a new release is\n%s", r.out)
	}
}

// checkForced checks `reconcile helmrelease` with its flags, suspend and resume.
func checkForced(t *testing.T, c client.Client, namespace string, in func(args ...string) result) {
	t.Helper()
	in("reconcile", "hr", "app", "--with-source").
		wants(t, exitOK, "of GitRepository", "of HelmChart", "of HelmRelease", "app' is ready")
	in("reconcile", "hr", "app", "--force", "--reset").wants(t, exitOK, "app' is ready")
	obj := &helmv2.HelmRelease{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "app"}, obj); err != nil {
		t.Fatal(err)
	}
	asked := obj.Annotations[meta.ReconcileRequestAnnotation]
	if asked == "" || obj.Annotations[helmv2.ForceRequestAnnotation] != asked ||
		obj.Annotations[helmv2.ResetRequestAnnotation] != asked {
		t.Errorf("the annotations are %v, want the same value for all requests", obj.Annotations)
	}
	if len(obj.Status.History) == 0 || obj.Status.History[0].Version != 2 {
		t.Errorf("the history is %+v, want a second version: --force upgrades without a change", obj.Status.History)
	}
	in("suspend", "hr", "app").wants(t, exitOK, "app' suspended")
	in("resume", "hr", "app").wants(t, exitOK, "app' resumed", "app' is ready")
}
