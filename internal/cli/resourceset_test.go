package cli

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

const tenantsSet = `apiVersion: fluxcd.controlplane.io/v1
kind: ResourceSet
metadata: {name: tenants}
spec:
  inputsFrom: [{kind: ResourceSetInputProvider, name: sizes}]
  resources:
  - apiVersion: v1
    kind: ConfigMap
    metadata: {name: "app-<< inputs.tenant >>", namespace: NS}
    data: {size: << inputs.size | quote >>}
  - apiVersion: v1
    kind: Secret
    metadata: {name: login, namespace: NS}
    stringData: {password: << inputs.size | quote >>}
`

// TestResourceSetCommands runs the commands about ResourceSets and their providers, with real controllers.
func TestResourceSetCommands(t *testing.T) {
	c, namespace := withControllers(t)
	in := func(line string) result {
		t.Helper()
		return at(t, append(strings.Fields(line), "-n", namespace)...)
	}
	shows := func(line string, want ...string) {
		t.Helper()
		r := in(line).wants(t, exitOK)
		for _, w := range want {
			if !strings.Contains(r.out, w) {
				t.Errorf("%s lacks %q:\n%s%s", line, w, r.out, r.err)
			}
		}
	}
	template := file(t, "t.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: app-<< inputs.tenant >>\n"+
		"  namespace: "+namespace+"\ndata: {size: << inputs.size | quote >>}\n")
	in("create input-provider sizes --type Static --default-values tenant=a,size=1").
		wants(t, exitOK, "ResourceSetInputProvider '"+namespace+"/sizes' is ready")
	in("create resourceset tenants --inputs-from sizes --template-file "+template).
		wants(t, exitOK, "ResourceSet '"+namespace+"/tenants' is ready")
	object := "ConfigMap/" + namespace + "/app-a"

	shows("get resourcesets", "tenants", "1")
	shows("get rsip", "sizes", "Static")
	shows("get all", "tenants", "sizes")
	shows("get rset tenants -o yaml", "kind: ResourceSet")
	shows("tree resourceset tenants", "ResourceSet/"+namespace+"/tenants", object)
	shows("trace cm/app-a", "ResourceSet/"+namespace+"/tenants")
	testenv.Eventually(t, "the event is written", func() error {
		return in("events --for ResourceSet/tenants").wants(t, exitOK).shows(object + " created")
	})
	shows("export resourceset tenants", "inputsFrom:")
	shows("export input-provider sizes", "type: Static")
	shows("why rset/tenants", "tenants")
	shows("why rsip/sizes", "sizes")
	shows("build resourceset tenants", "name: app-a")
	in("diff resourceset tenants").wants(t, exitOK, "no changes")
	in("reconcile resourceset tenants").wants(t, exitOK, "tenants' is ready")
	in("reconcile input-provider sizes").wants(t, exitOK, "sizes' is ready")
	for _, object := range []string{"resourceset tenants", "input-provider sizes"} {
		in("suspend "+object).wants(t, exitOK, "suspended")
		in("reconcile "+object).wants(t, exitFailed, "is suspended")
		in("resume "+object).wants(t, exitOK, "is ready")
	}

	t.Log("a changed declaration")
	other := file(t, "set.yaml", strings.ReplaceAll(tenantsSet, "NS", namespace))
	r := in("diff resourceset tenants --resourceset-file "+other).wants(t, 1, "1 object would change")
	if !strings.Contains(r.out, "+ Secret/"+namespace+"/login created") || strings.Contains(r.out, "MQ==") {
		t.Errorf("the difference is\n%s", r.out)
	}
	patch := `{"spec":{"defaultValues":{"tenant":"b","size":"1"}}}`
	provider := &controlplanev1.ResourceSetInputProvider{}
	provider.Namespace, provider.Name = namespace, "sizes"
	if err := c.Patch(t.Context(), provider, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the inputs are applied", func() error {
		return c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "app-b"}, &corev1.ConfigMap{})
	})
	in("delete resourceset tenants --silent").wants(t, exitOK, "deleted")
	in("delete input-provider sizes --silent").wants(t, exitOK, "deleted")
	r = in("get rset")
	if strings.Contains(r.out, "tenants") {
		t.Errorf("it is still there:\n%s", r.out)
	}
}
