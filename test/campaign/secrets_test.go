package campaign

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// templateForms are functions that make a text into another one, as a chart may do with a value.
var templateForms = []string{"b64enc", "b32enc", "upper", "lower", "title", "swapcase", "nospace", "snakecase",
	"kebabcase", "camelcase", "sha256sum", "sha1sum", "quote", "squote", "urlquery", "js", "html", "toJson", "toYaml",
	`printf "%%x"`, `printf "%%q"`, `printf "%%X"`, `replace "%[1]c" "%[2]c"`, "trunc %[3]d", "trunc -%[3]d",
	"substr %[4]d %[3]d", "abbrev %[3]d", `trimPrefix "%[1]c"`, `trimSuffix "%[2]c"`, `splitList "" | join "."`,
	`splitList "" | reverse | join ""`, `splitList "" | sortAlpha | join ""`, `regexReplaceAll "[%[1]c-%[2]c]" "%[2]c"`,
	`wrapWith %[3]d "-"`, `cat "%[1]c"`, "repeat 2", "indent %[4]d", `list | toJson`, `dict "k" | toYaml`}

// variableForms are operations on a variable of a Kustomization.
var variableForms = []string{"${S}", "${S:%[4]d}", "${S:%[4]d:%[3]d}", "${S^^}", "${S,,}", "${S^}", "${S,}",
	"${S//%[1]c/%[2]c}", "${S/%[1]c/%[2]c}", "${S#?}", "${S##??}", "${S%%?}", "${S%%%%??}", "${S#*%[1]c}",
	"${S%%%[1]c*}", "x${S}", "${S:%[4]d}${S:0:%[3]d}", "${S:-%[1]c}", "${S//[%[1]c-%[2]c]/%[2]c}"}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

func randomText(random *rand.Rand, length int) string {
	out := make([]byte, length)
	for i := range out {
		out[i] = letters[random.IntN(len(letters))]
	}
	return string(out)
}

// form returns a form with random letters and numbers.
func form(random *rand.Rand, forms []string) string {
	low := random.IntN(26)
	text := fmt.Sprintf(forms[random.IntN(len(forms))], letters[low], letters[low+random.IntN(26-low)],
		8+random.IntN(12), 1+random.IntN(6))
	text, _, _ = strings.Cut(text, "%!(EXTRA")
	return text
}

// secretForms is how many forms of a secret a chart, and a Kustomization, make in an iteration.
const secretForms = 50

// formsOf returns manifests with forms of a secret: the template of a chart, and one with variables.
func formsOf(random *rand.Rand) (template, variables string) {
	template = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: chart}\ndata:\n"
	variables = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: variables}\ndata:\n"
	for n := range secretForms {
		pipeline := ".Values.secret"
		for range 1 + random.IntN(3) {
			pipeline += " | " + form(random, templateForms)
		}
		template += fmt.Sprintf("  k%d: {{ %s | toString | quote }}\n", n, pipeline)
		variables += fmt.Sprintf("  k%d: \"%s\"\n", n, form(random, variableForms))
	}
	return template, variables
}

// filesOf returns a chart and the files of a Kustomization.
func filesOf(random *rand.Rand, version string) map[string]string {
	template, variables := formsOf(random)
	return map[string]string{"app/a.yaml": variables, "chart/templates/a.yaml": template,
		"chart/Chart.yaml": "apiVersion: v2\nname: chart\nversion: " + version + "\n"}
}

// TestCampaignSecrets makes random forms of a secret in charts and Kustomizations, and then of another one: no part of
// a form is in a preview, in a difference, in an event, in a status or in the log.
func TestCampaignSecrets(t *testing.T) {
	const short, full = 2, 10
	e := begin(t, short, full)
	git := testenv.NewGit(t)
	c := start(t, settings{namespace: "flux-system"})
	count, seen := 0, 0
	e.each(func(_ int, random *rand.Rand) {
		n := newTenant(t, git)
		secret := randomText(random, 20+random.IntN(20))
		files := filesOf(random, "1.0.0")
		git.Commit(n.repo, files)
		release := &helmv2.HelmRelease{ObjectMeta: n.named("app"), Spec: helmv2.HelmReleaseSpec{Interval: hour,
			Chart: &helmv2.HelmChartTemplate{Spec: helmv2.HelmChartTemplateSpec{Chart: "chart",
				SourceRef: &helmv2.SourceReference{Kind: "GitRepository", Name: "app"}}},
			ValuesFrom: []meta.ValuesReference{{Kind: "Secret", Name: "s", ValuesKey: "S", TargetPath: "secret"}}}}
		release.Spec.Gates = []meta.GateReference{{Name: "gate"}}
		n.create(release, &corev1.Secret{ObjectMeta: n.named("s"), StringData: map[string]string{"S": secret}},
			&gatingv1.Gate{ObjectMeta: n.named("gate"),
				Spec: gatingv1.GateSpec{Interval: hour, Default: gatingv1.Closed}},
			n.source("app"), n.app("app", func(k *kustomizev1.Kustomization) {
				k.Spec.Path, k.Spec.Gates = "./app", []meta.GateReference{{Name: "gate"}}
				k.Spec.PostBuild = &kustomizev1.PostBuild{
					SubstituteFrom: []meta.SubstituteReference{{Kind: "Secret", Name: "s"}}}
			}))
		n.waitBoth()
		shown := n.waiting(files)
		n.open()
		forms := append(n.data("chart"), n.data("variables")...)
		n.patchSpec(&corev1.ConfigMap{}, "variables", `{"data":{"k1":"other"}}`)
		n.handled(&kustomizev1.Kustomization{}, "app")
		shown = append(shown, n.written()...)

		n.close()
		second := randomText(random, 20+random.IntN(20))
		n.patchSpec(&corev1.Secret{}, "s", fmt.Sprintf(`{"stringData":{"S":%q}}`, second))
		files = filesOf(random, "1.1.0")
		git.Commit(n.repo, files)
		n.fetch()
		n.waitBoth()
		shown = append(shown, n.waiting(files)...)
		n.open()
		n.handled(&kustomizev1.Kustomization{}, "app")
		n.handled(&helmv2.HelmRelease{}, "app")
		before := len(forms)
		forms = append(append(forms, n.data("chart")...), n.data("variables")...)
		if forms[before] == forms[0] {
			t.Error("the second change is not applied")
		}
		forms = append(forms, secret, second)
		shown = append(shown, n.written()...)
		log, err := os.ReadFile(c.log)
		if err != nil {
			t.Fatal(err)
		}
		shown = append(shown, string(log))
		count += len(forms)
		if !strings.Contains(strings.Join(shown, ""), "~ data.k") {
			t.Error("no difference is shown")
		}
		for _, text := range shown {
			for _, leak := range leaks(text, forms) {
				seen++
				t.Errorf("%q is in\n%s", leak, text)
			}
		}
	})
	e.note("%d forms, %d seen", count, seen)
}

// waitBoth waits until a Kustomization and a HelmRelease wait at the gate.
func (n *tenant) waitBoth() {
	n.Helper()
	testenv.Eventually(n, "both changes wait", func() error {
		g := &gatingv1.Gate{}
		err := n.client.Get(context.Background(), types.NamespacedName{Namespace: n.namespace, Name: "gate"}, g)
		if err == nil && len(g.Status.Waiting) != 2 {
			err = fmt.Errorf("%+v", g.Status)
		}
		return err
	})
}

// waiting returns what is shown of changes that wait.
func (n *tenant) waiting(files map[string]string) []string {
	n.Helper()
	return append(n.written(), n.sluice("gate", "status", "gate", "--diff"), n.previewOf(files),
		n.sluice("diff", "helmrelease", "app"))
}

// open opens the gate and waits until it is open.
func (n *tenant) open() {
	n.Helper()
	gate := &gatingv1.Gate{}
	n.patchSpec(gate, "gate", `{"spec":{"default":"opened"}}`)
	n.handled(gate, "gate")
}

// leaks returns the forms of which a text has a part.
func leaks(text string, forms []string) (found []string) {
	const shortest = 8
	parts := map[string]bool{}
	for n := 0; n+shortest <= len(text); n++ {
		parts[text[n:n+shortest]] = true
	}
	for _, f := range forms {
		for n := 0; n+shortest <= len(f); n++ {
			if parts[f[n:n+shortest]] {
				found = append(found, f)
				break
			}
		}
	}
	return found
}

// sluice runs a command in the namespace of the tenant, and returns what it prints.
func (n *tenant) sluice(args ...string) string {
	n.Helper()
	binary, err := testenv.Binary("sluice")
	if err != nil {
		n.Fatal(err)
	}
	args = append(args, "--kubeconfig", testenv.Kubeconfig(n), "-n", n.namespace)
	out, err := exec.Command(binary, args...).CombinedOutput()
	if len(out) == 0 {
		n.Errorf("%s prints nothing: %v", args, err)
	}
	return string(out)
}

// previewOf returns the preview of a change that adds files to an empty repository.
func (n *tenant) previewOf(files map[string]string) string {
	n.Helper()
	from, to := n.TempDir(), n.TempDir()
	for name, content := range files {
		path := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			n.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			n.Fatal(err)
		}
	}
	return n.sluice("preview", "--from-dir", from, "--to-dir", to, "--source", "GitRepository/"+n.namespace+"/app")
}

// data waits for a ConfigMap, and returns its values.
func (n *tenant) data(name string) (values []string) {
	n.Helper()
	cm := &corev1.ConfigMap{}
	testenv.Eventually(n, name+" is applied", func() error {
		return n.client.Get(context.Background(), types.NamespacedName{Namespace: n.namespace, Name: name}, cm)
	})
	for _, v := range cm.Data {
		values = append(values, v)
	}
	return values
}

// written returns what the controllers wrote for people: statuses and events.
func (n *tenant) written() (texts []string) {
	n.Helper()
	for _, list := range []client.ObjectList{&corev1.EventList{}, &kustomizev1.KustomizationList{},
		&helmv2.HelmReleaseList{}, &gatingv1.GateList{}} {
		if err := n.client.List(context.Background(), list, client.InNamespace(n.namespace)); err != nil {
			n.Fatal(err)
		}
		text, err := json.Marshal(list)
		if err != nil {
			n.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	return texts
}
