package migrate

import (
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// TestWhatCannotBeAppliedBlocks checks that the report names each Kustomization that Sluice could not build or apply,
// with its cause, and each file that only Sluice would see.
func TestWhatCannotBeAppliedBlocks(t *testing.T) {
	f := newFlux(t)
	w := f.small()
	team := f.teams[0]
	w.git.Commit("broken", map[string]string{
		"helm/kustomization.yaml": "helmCharts: [{name: x, repo: https://charts.example.com}]\n",
		"role/role.yaml": "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\n" +
			"metadata: {name: r, namespace: " + team + "}\n" +
			"rules: [{apiGroups: [\"\"], resources: [pods], verbs: [get], resourceName: [one]}]\n",
		"typo/cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm, namespace: " + team + "}\nunknown: x\n",
	})
	commit := w.git.Commit("broken", map[string]string{"later.md": "x"})
	w.broken(team, "main@sha1:"+commit)
	for _, name := range []string{"helm", "role", "typo", "gone"} {
		w.kustomizationOf(team, name, "broken")
	}
	w.put("source-controller", "source.toolkit.fluxcd.io/v1", "OCIRepository", team, "keyless",
		object{"interval": "1h", "url": w.registry.OCI + "/app", "verify": object{"provider": "cosign"}},
		ready("Succeeded", "stored", nil))
	p := f.plan(1)
	f.blockedBy(p,
		"OCIRepository '"+team+"/keyless' verifies keyless signatures without matchOIDCIdentity",
		"Kustomization '"+team+"/helm' cannot be applied by Sluice: ",
		"Kustomization '"+team+"/role' cannot be applied by Sluice: ",
		"Kustomization '"+team+"/gone' cannot be applied by Sluice: ",
		"Kustomization '"+team+"/typo': Sluice would change what it applied: ConfigMap/"+team+"/cm created. "+
			"The artifact of Flux lacks 1 file that Sluice has: typo/cm.yaml")
	for _, want := range []string{"inflates Helm charts", "resourceName", "--no-diff"} {
		if !strings.Contains(strings.Join(p.Blockers, "\n"), want) {
			t.Errorf("the problems lack %q:\n%s", want, strings.Join(p.Blockers, "\n"))
		}
	}
}

// broken creates a source with the files that Flux has, which lack typo/cm.yaml.
func (w *world) broken(team, revision string) {
	w.Helper()
	w.archives["/broken.tar.gz"] = system.Archive(w.T, map[string]string{
		"helm/kustomization.yaml": "helmCharts: [{name: x, repo: https://charts.example.com}]\n",
		"role/role.yaml":          "x: y\n", "typo/.sourceignore": "", "later.md": "x"})
	w.put("source-controller", "source.toolkit.fluxcd.io/v1", "GitRepository", team, "broken",
		object{"url": w.git.URL + "/broken", "interval": "1h", "ref": object{"branch": "main"}},
		ready("Succeeded", "stored", object{"artifact": w.artifact("/broken.tar.gz", revision)}))
}

// kustomizationOf creates a Kustomization of a source that has applied nothing.
func (w *world) kustomizationOf(team, name, source string) {
	w.Helper()
	w.kustomization(team, name, "./"+name, []any{},
		object{"sourceRef": object{"kind": "GitRepository", "name": source}})
}
