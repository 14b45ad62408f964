package cli

import (
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/review/preview"
)

// ruledFleet creates a source with five Kustomizations, and gates: one with rules that all name, one with a rule that
// fails, and one that selects the source by its labels.
func ruledFleet(t *testing.T, c client.Client, namespace string) {
	t.Helper()
	create := func(o client.Object, name string) {
		t.Helper()
		o.SetNamespace(namespace)
		o.SetName(name)
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	source := &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"tier": "production"}}}
	source.Spec.URL = "https://git.example.com/fleet.git"
	create(source, "fleet")
	created := func(kind string) string { return "change.created.exists(o, o.kind == '" + kind + "')" }
	create(&gatingv1.Gate{Spec: gatingv1.GateSpec{Default: gatingv1.Closed, Rules: []gatingv1.Rule{
		{Name: "no-claims", Expression: created("PersistentVolumeClaim"), Outcome: gatingv1.OutcomeDeny,
			Message: "ask the storage team"},
		{Name: "rights", Expression: created("Role"), Outcome: gatingv1.OutcomeApprovals,
			Approvals: &gatingv1.Approvals{Required: 2, Groups: []string{"security"}}},
		{Name: "settings", Outcome: gatingv1.OutcomePass,
			Expression: "change.risk == 'low' && change.files.size() == 10 && " + created("ConfigMap")},
	}}}, "content")
	create(&gatingv1.Gate{Spec: gatingv1.GateSpec{Default: gatingv1.Opened, Rules: []gatingv1.Rule{
		{Name: "broken", Expression: "change.nothing == 1", Outcome: gatingv1.OutcomeDeny}}}}, "broken")
	create(&gatingv1.Gate{Spec: gatingv1.GateSpec{Default: gatingv1.Opened, Selector: &gatingv1.Selector{
		Objects: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "production"}}}}}, "selects")
	for name, gate := range map[string]string{"db": "content", "roles": "content", "web": "content",
		"accounts": "content", "odd": "broken"} {
		k := &kustomizev1.Kustomization{}
		k.Spec.Path, k.Spec.TargetNamespace, k.Spec.Prune = "./"+name, namespace, true
		k.Spec.SourceRef.Kind, k.Spec.SourceRef.Name = "GitRepository", "fleet"
		k.Spec.Gates = []meta.GateReference{{Name: gate}}
		create(k, name)
	}
}

// ruledChange returns directories before and after a change that creates one object for each Kustomization.
func ruledChange(t *testing.T) (from, to string) {
	t.Helper()
	object := func(api, kind, more string) string {
		return "apiVersion: " + api + "\nkind: " + kind + "\nmetadata: {name: new}\n" + more
	}
	after := map[string]string{
		"db/new.yaml": object("v1", "PersistentVolumeClaim", "spec: {accessModes: [ReadWriteOnce], resources: "+
			"{requests: {storage: 1Gi}}}\n"),
		"roles/new.yaml": object("rbac.authorization.k8s.io/v1", "Role", "rules: [{apiGroups: [''], resources: "+
			"[secrets], verbs: [get]}]\n"),
		"web/new.yaml": object("v1", "ConfigMap", ""), "accounts/new.yaml": object("v1", "ServiceAccount", ""),
		"odd/new.yaml": object("v1", "Service", "spec: {ports: [{port: 80}]}\n"),
	}
	before := map[string]string{"README.md": ""}
	for name := range after {
		before[strings.Replace(name, "new", "kustomization", 1)] = "resources: []\n"
	}
	for name, content := range before {
		after[name] = content
		if strings.HasSuffix(name, "kustomization.yaml") {
			after[name] = "resources: [new.yaml]\n"
		}
	}
	return write(t, before), write(t, after)
}

func TestSimulateGatesChange(t *testing.T) {
	c, namespace := withDefinitions(t)
	ruledFleet(t, c, namespace)
	from, to := ruledChange(t)
	simulate := func(args ...string) result {
		t.Helper()
		return at(t, append([]string{"simulate", "gates", "--change", "--from-dir", from, "--source",
			"GitRepository/" + namespace + "/fleet"}, args...)...)
	}
	r := simulate("--to-dir", to).wants(t, 1, "would hold the change at 4 of 6 objects")
	lines := map[string]string{}
	for line := range strings.Lines(r.out) {
		fields := strings.Fields(line)
		lines[strings.TrimPrefix(fields[0], "Kustomization/"+namespace+"/")] = strings.Join(fields[1:], " ")
	}
	gate := " " + namespace + "/content "
	for name, want := range map[string]string{
		"db": "low" + gate + "denied no-claims denies the change by rule 'no-claims': ask the storage team",
		"roles": "medium" + gate + "needs 2 approvals of group security rights requires 2 approvals of this change " +
			"by rule 'rights'",
		"accounts": "low" + gate + "held - is closed, and none of its rules applies: Gate closed by default",

		"odd": "low " + namespace + "/broken held - its rule 'broken' cannot be evaluated: no such key: nothing",

		"GitRepository/" + namespace + "/fleet": "- " + namespace + "/selects passes - -",
	} {
		if lines[name] != want {
			t.Errorf("%s: %q, want %q", name, lines[name], want)
		}
	}
	var decisions preview.Decisions
	if err := json.Unmarshal([]byte(simulate("--to-dir", to, "-o", "json").wants(t, 1).out), &decisions); err != nil {
		t.Fatal(err)
	}
	for _, o := range decisions.Objects {
		if o.Name == "web" && (len(o.Gates) != 1 || o.Gates[0].Rule != "settings" || !o.Gates[0].Passes) {
			t.Errorf("the gates of %s: %+v", o.Name, o.Gates)
		}
	}
	simulate("--to-dir", from).wants(t, exitOK, "no gate would hold the change")
	broken := write(t, map[string]string{"web/kustomization.yaml": "resources: [missing.yaml]\n"})
	simulate("--to-dir", broken).wants(t, exitUsage, "could not be computed")
	at(t, "simulate", "gates", "--from", "main").wants(t, exitUsage, "--from needs --change")
	at(t, "simulate", "gates", "--change", "--to-dir", to).wants(t, exitUsage, "need each other")
}
