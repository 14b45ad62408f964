package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/strvals"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/cli/install"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

func installPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(checkout, "docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// TestHelmCommandsOfPage renders the chart as each command of docs/install.md does. The chart of a release is that of
// the checkout with other defaults.
func TestHelmCommandsOfPage(t *testing.T) {
	count := 0
	for line := range strings.Lines(strings.ReplaceAll(installPage(t), "\\\n", "")) {
		command, ok := strings.CutPrefix(line, "helm upgrade --install sluice ")
		if !ok {
			continue
		}
		count++
		words := strings.Fields(command)
		if words[0] != chartDir && !strings.HasSuffix(words[0], "/sluice-1.2.3.tgz") {
			t.Errorf("%s is not a chart of Sluice", words[0])
		}
		values, namespace := map[string]any{}, ""
		for k, word := range words[:len(words)-1] {
			switch word {
			case "--set":
				if err := strvals.ParseInto(words[k+1], values); err != nil {
					t.Fatal(err)
				}
			case "--namespace":
				namespace = words[k+1]
			}
		}
		if objects := rendered(t, load(t), namespace, values); len(objects) < 30 {
			t.Errorf("%s: the release has %d objects", line, len(objects))
		}
	}
	if count != 2 {
		t.Errorf("the page has %d commands of Helm", count)
	}
}

// TestKustomizationOfPage builds the kustomization of docs/install.md, with the base of the checkout.
func TestKustomizationOfPage(t *testing.T) {
	_, text, _ := strings.Cut(installPage(t), "```yaml\napiVersion: kustomize")
	text, _, found := strings.Cut("apiVersion: kustomize"+text, "```")
	if !found || !remote.MatchString(text) {
		t.Fatalf("the page has no kustomization:\n%s", text)
	}
	wantEqual(t, build(t, text), install.Default("v1.2.3"))
}

// TestValuesOfUIPage renders the chart with the values of docs/ui.md. They are what the command of the page installs.
func TestValuesOfUIPage(t *testing.T) {
	values := map[string]any{}
	for _, block := range testenv.Blocks(t, "ui.md", "yml") {
		if strings.HasPrefix(block, "ui:") {
			if err := yaml.UnmarshalStrict([]byte(block), &values); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(values) == 0 {
		t.Fatal("docs/ui.md has no values")
	}
	o := install.Default("latest")
	o.UI = install.UI{URL: "https://sluice.example.com", Issuer: "https://login.example.com", ClientID: "sluice",
		ClientSecret: "sluice-ui", UsernameClaim: "email"}
	wantEqual(t, rendered(t, load(t), o.Namespace, values), o, "Namespace")
}

// TestKustomizationOfUIPage builds the kustomization of docs/ui.md, with the base and the component of the checkout.
func TestKustomizationOfUIPage(t *testing.T) {
	text := ""
	for _, block := range testenv.Blocks(t, "ui.md", "yml") {
		if strings.HasPrefix(block, "resources:") {
			text = block
		}
	}
	if !remote.MatchString(text) {
		t.Fatalf("docs/ui.md has no kustomization: %s", text)
	}
	o := install.Default("latest")
	o.UI = install.UI{URL: "https://sluice.example.com"}
	wantEqual(t, build(t, text), o)
}

// TestReplicasOfPage renders the chart with the values of docs/high-availability.md, and builds its kustomization. Both
// are what the command of the page installs.
func TestReplicasOfPage(t *testing.T) {
	o := install.Default("latest")
	o.Backend = install.Backend{Endpoint: "https://s3.eu-west-1.amazonaws.com", Bucket: "sluice", Prefix: "production",
		Secret: "artifact-bucket"}
	blocks := testenv.Blocks(t, "high-availability.md", "yml")
	if len(blocks) != 2 {
		t.Fatalf("the page has %d blocks", len(blocks))
	}
	var values map[string]any
	if err := yaml.Unmarshal([]byte(blocks[0]), &values); err != nil {
		t.Fatal(err)
	}
	wantEqual(t, rendered(t, load(t), "flux-system", values), o, "Namespace")
	wantEqual(t, build(t, blocks[1]), o)
	flags := " --storage-backend-s3-endpoint " + o.Backend.Endpoint + " --storage-backend-s3-bucket " +
		o.Backend.Bucket + " --storage-backend-s3-prefix " + o.Backend.Prefix + " --storage-backend-secret " +
		o.Backend.Secret
	page, err := os.ReadFile(filepath.Join(checkout, "docs", "high-availability.md"))
	command := strings.Join(strings.Fields(strings.ReplaceAll(string(page), "\\\n", "")), " ")
	if err != nil || !strings.Contains(command, "sluice install"+flags) {
		t.Errorf("the page does not name the command that installs this: %v", err)
	}
}

// TestFleetPage builds the kustomization of docs/fleet.md, and renders the chart with its values. Both are what
// commands install.
func TestFleetPage(t *testing.T) {
	blocks := testenv.Blocks(t, "fleet.md", "yml")
	if len(blocks) != 2 {
		t.Fatalf("the page has %d blocks", len(blocks))
	}
	hub := install.Default("latest")
	hub.Namespace, hub.Components, hub.Hub.URL = "sluice-hub", []string{install.HubComponent}, "https://hub.example.com"
	hub.Backend = install.Backend{Endpoint: "https://s3.eu-west-1.amazonaws.com", Bucket: "fleet"}
	wantEqual(t, build(t, blocks[0]), hub, "Namespace")
	var values map[string]any
	if err := yaml.Unmarshal([]byte(blocks[1]), &values); err != nil {
		t.Fatal(err)
	}
	member := install.Default("latest")
	member.Args = []string{"--report-to=https://hub.example.com", "--report-as=edge-7"}
	wantEqual(t, rendered(t, load(t), member.Namespace, values), member, "Namespace")
}

// remote matches the directories of a release.
var remote = regexp.MustCompile(`https://github\.com/sluice-gitops/sluice//config/(\w+)\?ref=v1\.2\.3`)

// build builds a kustomization with the directories of the checkout.
func build(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	base, err := filepath.Abs(filepath.Join(checkout, "config"))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if base, err = filepath.Rel(dir, base); err != nil {
		t.Fatal(err)
	}
	text = remote.ReplaceAllString(text, base+"/$1")
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	manifests, err := built.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, string(manifests))
}
