package migrate

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestSettingsOfAFluxInstance(t *testing.T) {
	t.Parallel()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(`
apiVersion: fluxcd.controlplane.io/v1
kind: FluxInstance
metadata: {name: flux, namespace: flux-system}
spec:
  distribution: {version: 2.x, registry: ghcr.io/fluxcd, imagePullSecret: pull}
  components: [source-controller, kustomize-controller]
  cluster: {type: openshift, size: large, domain: corp.local, networkPolicy: false, multitenant: true}
  sharding: {shards: [a, b]}
  sync: {kind: OCIRepository, url: "oci://r/fleet", ref: latest, path: .}
  kustomize: {patches: [{patch: "a secret"}]}`), &u.Object); err != nil {
		t.Fatal(err)
	}
	s := Settings{Controllers: []string{"source-controller"}, Args: []string{"--concurrent=20"}}
	settings, warnings := s.readInstance(u)
	var got []string
	for _, x := range settings {
		got = append(got, strings.TrimPrefix(x.Name, "spec.")+"="+x.Value+" -> "+x.Becomes+" ("+x.Note+")")
	}
	want := []string{
		"components=2 items ->  (in the flags of the Deployments)",
		"cluster.size=large ->  (in the flags of the Deployments)",
		"cluster.multitenant=true ->  (in the flags of the Deployments)",
		"cluster.domain=corp.local -> --cluster-domain=corp.local ()",
		"cluster.networkPolicy=false -> --network-policy=false ()",
		"distribution.imagePullSecret=pull -> --image-pull-secret=pull ()",
		"distribution.version=2.x ->  (that of Sluice: --version)",
		"distribution.registry=ghcr.io/fluxcd ->  (that of Sluice: --registry)",
		"sharding.shards=2 items ->  (one process reconciles all shards; --auto-shards shares them among replicas)",
		"sync.kind=OCIRepository ->  (the OCIRepository and the Kustomization stay as they are)",
		"kustomize.patches=1 item ->  (not copied)",
		"cluster.type=openshift ->  (not copied)",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if len(warnings) != 2 || !strings.Contains(warnings[0], "sets spec.kustomize.patches, which changes manifests") {
		t.Errorf("warnings: %q", warnings)
	}
	const command = "sluice install -n flux-system --components=source-controller --cluster-domain=corp.local " +
		"--image-pull-secret=pull --network-policy=false --controller-arg=--concurrent=20"
	if got := s.Install("flux-system"); got != command {
		t.Errorf("got %s", got)
	}
}
