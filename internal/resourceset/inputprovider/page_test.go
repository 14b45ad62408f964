package inputprovider_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
)

// TestPage runs the examples of docs/resourcesetinputprovider.md against stubs: the pull request of the page is
// exported, the newest version of an image, and the answer of the service.
func TestPage(t *testing.T) {
	const page = "resourcesetinputprovider.md"
	s := newProviders(t)
	github := newHost(t, "Bearer s3cret")
	github.answer(openPulls, `[{"number":42,"title":"Add the search","user":{"login":"mona"},
		"labels":[{"name":"preview"},{"name":"tested"}],"head":{"ref":"feat/search","sha":%q}},
		{"number":41,"title":"Untested","user":{"login":"x"},"labels":[{"name":"preview"}],
		"head":{"ref":"x","sha":%q}}]`, commitOf("4"), commitOf("3"))
	s.Secret("github", map[string]string{"username": "git", "password": "s3cret"})
	registry := ociregistry.New(t)
	digest := registry.Push("org/app", "1.2.0", nil).DigestStr()
	registry.Push("org/app", "1.1.0", map[string]string{"a": "b"})
	objects := testenv.Blocks(t, page, "yaml")
	if len(objects) != 2 {
		t.Fatalf("the page has %d objects", len(objects))
	}
	for _, text := range objects {
		text = strings.NewReplacer("https://github.com", github.URL, "oci://ghcr.io/org/app",
			registry.OCI+"/org/app\n  insecure: true").Replace(text)
		obj := &controlplanev1.ResourceSetInputProvider{}
		if err := yaml.UnmarshalStrict([]byte(text), obj); err != nil {
			t.Fatal(err)
		}
		obj.Namespace = s.Namespace
		metav1.SetMetaDataAnnotation(&obj.ObjectMeta, "reconcile.fluxcd.io/requestedAt", "1")
		metav1.SetMetaDataAnnotation(&obj.ObjectMeta, "reconcile.fluxcd.io/forceAt", "1")
		s.Create(obj)
	}
	sets := strings.ReplaceAll(testenv.Blocks(t, page, "yml")[0], commitOf("4"), `"`+commitOf("4")+`"`)
	s.exports("previews", sets)
	s.exports("releases", `[{id: "47448304", tag: 1.2.0, digest: "`+digest+`"}]`)

	service := newHost(t, "")
	service.answer("/", "%s", testenv.Blocks(t, page, "json")[0])
	s.provider("service", "type: ExternalService\ninsecure: true\nurl: "+service.URL+"/")
	s.exports("service", "[{id: eu-1, region: eu, replicas: 3}]")
}
