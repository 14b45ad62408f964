package source_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

var (
	writesArtifacts = rbacv1.PolicyRule{APIGroups: []string{sourcev1.GroupVersion.Group}, Verbs: []string{"*"},
		Resources: []string{"externalartifacts", "externalartifacts/status"}}
	writesNamespaces = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"},
		Verbs: []string{"create", "patch", "delete"}}
)

// newTenants starts controllers of all namespaces, with a GitRepository of one directory a tenant.
func newTenants(t *testing.T, tenants ...string) *harness {
	s := newHarness(t, system.AllNamespaces)
	files := map[string]string{"tenants/README.md": "x"}
	for _, name := range tenants {
		files["tenants/"+name+"/a.yaml"] = "a: " + name
	}
	s.Git.Commit("mono", files)
	s.GitRepository("mono", func(g *sourcev1.GitRepository) { g.Labels = map[string]string{"test": s.Namespace} })
	return s
}

// account creates a service account with permissions in the whole cluster.
func (s *harness) account(name string, rules ...rbacv1.PolicyRule) {
	s.Helper()
	s.Create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}})
	global := metav1.ObjectMeta{Name: s.Namespace + "-" + name}
	role := &rbacv1.ClusterRole{ObjectMeta: global, Rules: rules}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: global,
		RoleRef:  rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: global.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: name, Namespace: s.Namespace}}}
	s.Create(role)
	s.Create(binding)
	s.Cleanup(func() {
		if err := errors.Join(s.Client.Delete(context.Background(), role),
			s.Client.Delete(context.Background(), binding)); err != nil {
			s.Error(err)
		}
	})
}

// tenants creates a generator with an artifact for each directory of tenants, in a namespace that starts with that
// of the test.
func (s *harness) tenants(name string, change func(*extensionsv1beta1.ArtifactGeneratorSpec)) {
	s.Helper()
	output := system.ArtifactOutput("{tenant}", "@mono/tenants/{tenant}/**")
	output.Namespace = s.Namespace + "-{tenant}"
	g := &extensionsv1beta1.ArtifactGenerator{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name,
			Labels: map[string]string{"test": s.Namespace}},
		Spec: extensionsv1beta1.ArtifactGeneratorSpec{
			PathPattern: "@mono/tenants/{tenant}", Artifacts: []extensionsv1beta1.OutputArtifact{output},
			CommonMetadata: &extensionsv1beta1.CommonMetadata{Labels: map[string]string{"test": s.Namespace,
				"team": "platform"}},
			Sources: []extensionsv1beta1.SourceReference{{Alias: "mono", Kind: sourcev1.GitRepositoryKind,
				Name: "mono"}},
		}}
	change(&g.Spec)
	s.Create(g)
}

// managed lets a generator manage the Namespaces of its artifacts, as the account "tenants".
func (s *harness) managed(g *extensionsv1beta1.ArtifactGeneratorSpec) {
	g.ServiceAccountName = "tenants"
	g.ManagedNamespaces = &extensionsv1beta1.ManagedNamespaces{Prune: true,
		AllowedNames: []string{"ns == 'other'", "ns.startsWith('" + s.Namespace + "-')"}}
}

// namespaceOf waits until a Namespace exists that fulfils a condition, and returns it.
func (s *harness) namespaceOf(tenant string, check func(*corev1.Namespace) bool) *corev1.Namespace {
	s.Helper()
	ns := &corev1.Namespace{}
	testenv.Eventually(s, "Namespace of "+tenant, func() error {
		err := s.Client.Get(s.Context(), types.NamespacedName{Name: s.Namespace + "-" + tenant}, ns)
		if err == nil && !check(ns) {
			err = fmt.Errorf("%+v", ns.ObjectMeta)
		}
		return err
	})
	return ns
}

// given creates the Namespace of a tenant, as others do.
func (s *harness) given(tenant string, labels map[string]string) *corev1.Namespace {
	s.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace + "-" + tenant, Labels: labels}}
	s.Create(ns)
	return ns
}

// removeNamespaces deletes the Namespaces of tenants at the end of the test.
func (s *harness) removeNamespaces(tenants ...string) {
	s.Cleanup(func() {
		for _, tenant := range tenants {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace + "-" + tenant}}
			if err := s.Client.Delete(context.Background(), ns); client.IgnoreNotFound(err) != nil {
				s.Error(err)
			}
		}
	})
}

// artifactIn returns the ExternalArtifact of a tenant.
func (s *harness) artifactIn(tenant string) (*sourcev1.ExternalArtifact, error) {
	o := &sourcev1.ExternalArtifact{}
	return o, s.Client.Get(s.Context(), types.NamespacedName{Namespace: s.Namespace + "-" + tenant, Name: tenant}, o)
}

// settled waits until a generator is Ready, after its last request, and returns it.
func (s *harness) settled(name string) *extensionsv1beta1.ArtifactGenerator {
	s.Helper()
	g := &extensionsv1beta1.ArtifactGenerator{}
	testenv.Eventually(s, name+" is Ready", func() error {
		if err := s.Get(g, name); err != nil || !reconcile.IsReady(g) || g.Status.ObservedGeneration != g.Generation ||
			g.Annotations[meta.ReconcileRequestAnnotation] != g.Status.LastHandledReconcileAt {
			return errors.Join(err, fmt.Errorf("%+v", g.Status))
		}
		return nil
	})
	return g
}

func anyNamespace(*corev1.Namespace) bool { return true }

func TestGeneratorManagesNamespaces(t *testing.T) {
	s := newTenants(t, "a", "b")
	s.removeNamespaces("a", "b")
	s.account("tenants", writesArtifacts, writesNamespaces)
	s.Git.Commit("mono", map[string]string{"tenants/a/ns.yaml": "apiVersion: source.extensions.fluxcd.io/v1beta1\n" +
		"kind: NamespaceMetadata\nmetadata:\n  labels: {tier: gold, admin: 'true'}\n"})
	s.RequestFetch("mono")
	s.tenants("all", func(g *extensionsv1beta1.ArtifactGeneratorSpec) {
		s.managed(g)
		g.Artifacts[0].InputsFrom = "@artifact/a.yaml"
		g.ManagedNamespaces.Metadata = &extensionsv1beta1.NamespaceMetadata{
			FromSource: &extensionsv1beta1.NamespaceMetadataFile{Path: "@mono/tenants/{tenant}/ns.yaml",
				AllowedLabels: map[string]string{"tier": "^(gold|silver)$"}},
			From: []extensionsv1beta1.NamespaceMetadataChange{
				{Namespace: "*", Strategy: extensionsv1beta1.MetadataMerge, Labels: map[string]string{"tier": "bronze",
					extensionsv1beta1.GeneratorLabel: "x"}},
				{Namespace: s.Namespace + "-b", Strategy: extensionsv1beta1.MetadataReset,
					Annotations: map[string]string{"note": "b"}},
			}}
	})
	a := s.namespaceOf("a", func(ns *corev1.Namespace) bool { return ns.Labels["tier"] == "gold" })
	b := s.namespaceOf("b", func(ns *corev1.Namespace) bool { return ns.Annotations["note"] == "b" })
	g := s.settled("all")
	if a.Labels["team"] != "platform" || a.Labels["admin"] != "" ||
		a.Labels[extensionsv1beta1.GeneratorLabel] != string(g.UID) || b.Labels["team"] != "" ||
		b.Labels["tier"] != "" {
		t.Errorf("labels %v and %v", a.Labels, b.Labels)
	}
	var kinds []string
	for _, e := range g.Status.Inventory {
		kinds = append(kinds, e.Kind+" "+e.Namespace+"/"+e.Name)
	}
	if want := []string{"Namespace /" + a.Name, "ExternalArtifact " + a.Name + "/a", "Namespace /" + b.Name,
		"ExternalArtifact " + b.Name + "/b"}; !slices.Equal(kinds, want) {
		t.Errorf("inventory %q", kinds)
	}
	made, err := s.artifactIn("a")
	if err != nil || string(made.Status.ExportedInputs["a"].Raw) != `"a"` || len(made.OwnerReferences) > 0 {
		t.Errorf("%+v, %v", made, err)
	}

	prunesNamespaces(t, s, a, b, g)
}

// prunesNamespaces corrects the metadata of a Namespace, removes two of three tenants, and then the generator.
func prunesNamespaces(t *testing.T, s *harness, a, b *corev1.Namespace, g *extensionsv1beta1.ArtifactGenerator) {
	t.Helper()
	t.Log("drift of the metadata is corrected")
	s.patchNamespace(a, `{"metadata":{"labels":{"tier":"other","mine":"kept"}}}`)
	s.RequestReconcile(g, "all")
	s.namespaceOf("a", func(ns *corev1.Namespace) bool {
		return ns.Labels["tier"] == "gold" && ns.Labels["mine"] == "kept"
	})

	t.Log("a Namespace without artifacts is deleted, unless an annotation protects it")
	s.patchNamespace(b, `{"metadata":{"annotations":{"source.extensions.fluxcd.io/prune":"disabled"}}}`)
	s.Git.Commit("mono", map[string]string{"tenants/a/a.yaml": "", "tenants/a/ns.yaml": "", "tenants/b/a.yaml": "",
		"tenants/c/a.yaml": "a: c"})
	s.removeNamespaces("c")
	s.RequestFetch("mono")
	s.deletesNamespace("a")
	s.namespaceOf("c", anyNamespace)
	s.removesArtifact("b")
	s.settled("all")
	if b := s.namespaceOf("b", anyNamespace); !b.DeletionTimestamp.IsZero() {
		t.Error("the protected Namespace was deleted")
	}

	t.Log("the Namespaces are deleted with the generator")
	if err := s.Client.Delete(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	s.Gone(&extensionsv1beta1.ArtifactGenerator{}, "all")
	s.deletesNamespace("c")
}

func (s *harness) patchNamespace(ns *corev1.Namespace, patch string) {
	s.Helper()
	if err := s.Client.Patch(s.Context(), ns, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		s.Fatal(err)
	}
}

// removesArtifact waits until the ExternalArtifact of a tenant does not exist.
func (s *harness) removesArtifact(tenant string) {
	s.Helper()
	testenv.Eventually(s, "the artifact of "+tenant+" is deleted", func() error {
		_, err := s.artifactIn(tenant)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it remains"))
	})
}

// deletesNamespace waits until the Namespace of a tenant is being deleted.
func (s *harness) deletesNamespace(tenant string) {
	s.Helper()
	testenv.Eventually(s, "Namespace of "+tenant+" is deleted", func() error {
		var ns corev1.Namespace
		err := s.Client.Get(s.Context(), types.NamespacedName{Name: s.Namespace + "-" + tenant}, &ns)
		if apierrors.IsNotFound(err) || err == nil && !ns.DeletionTimestamp.IsZero() {
			return nil
		}
		return errors.Join(err, errors.New("it still exists"))
	})
}

func TestArtifactsInOtherNamespacesNeedAnAccount(t *testing.T) {
	s := newTenants(t, "a")
	s.removeNamespaces("a")
	ns := s.given("a", nil)
	g := &extensionsv1beta1.ArtifactGenerator{}

	s.tenants("none", func(*extensionsv1beta1.ArtifactGeneratorSpec) {})
	s.NotReady(g, "none", "AccessDenied", "needs a service account that is allowed to. "+
		"Set spec.serviceAccountName, and grant the account what it writes")
	s.tenants("absent", func(g *extensionsv1beta1.ArtifactGeneratorSpec) { g.ServiceAccountName = "absent" })
	s.NotReady(g, "absent", "AccessDenied", "ServiceAccount '"+s.Namespace+"/absent' not found, which "+
		"spec.serviceAccountName or --default-service-account names. Create it, and bind a role to it that allows "+
		"what it writes")
	s.Create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "tenant"}})
	s.GrantAll("tenant")
	s.tenants("tenant", func(g *extensionsv1beta1.ArtifactGeneratorSpec) { g.ServiceAccountName = "tenant" })
	s.NotReady(g, "tenant", "ReconciliationFailed", s.Namespace+`:tenant" cannot create resource "externalartifacts"`)
	if _, err := s.artifactIn("a"); !apierrors.IsNotFound(err) {
		t.Fatalf("an artifact was written: %v", err)
	}

	t.Log("a role in the other namespace is enough, and is needed for deletion as well")
	s.Create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "tenant"},
		Rules: []rbacv1.PolicyRule{writesArtifacts}})
	s.Create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "tenant"},
		RoleRef:  rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "tenant"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "tenant", Namespace: s.Namespace}}})
	s.RequestReconcile(g, "tenant")
	s.settled("tenant")
	if err := s.Get(g, "tenant"); err != nil {
		t.Fatal(err)
	}
	if err := s.Client.Delete(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	s.Gone(g, "tenant")
	if _, err := s.artifactIn("a"); !apierrors.IsNotFound(err) {
		t.Errorf("the artifact remains: %v", err)
	}
}

func TestDefaultServiceAccountWritesToOtherNamespaces(t *testing.T) {
	t.Parallel()
	s := newHarness(t, system.AllNamespaces, func(o *options.Options) { o.DefaultAccount = "tenants" })
	s.Git.Commit("mono", map[string]string{"tenants/a/a.yaml": "a: 1"})
	s.GitRepository("mono", func(g *sourcev1.GitRepository) { g.Labels = map[string]string{"test": s.Namespace} })
	s.removeNamespaces("a")
	s.given("a", nil)
	s.tenants("all", func(*extensionsv1beta1.ArtifactGeneratorSpec) {})
	s.NotReady(&extensionsv1beta1.ArtifactGenerator{}, "all", "AccessDenied", "tenants' not found")
	s.account("tenants", writesArtifacts)
	s.RequestReconcile(&extensionsv1beta1.ArtifactGenerator{}, "all")
	s.settled("all")
	if _, err := s.artifactIn("a"); err != nil {
		t.Error(err)
	}
}

func TestGeneratorsCannotTakeNamespaces(t *testing.T) {
	s := newTenants(t, "a", "b", "kube-system")
	s.removeNamespaces("a", "b", "kube-system")
	s.account("tenants", writesArtifacts, writesNamespaces)
	theirs := s.given("a", map[string]string{"owner": "others"})
	g := &extensionsv1beta1.ArtifactGenerator{}

	t.Log("Namespaces of the cluster are never managed, also if a directory has their name")
	s.tenants("captured", func(g *extensionsv1beta1.ArtifactGeneratorSpec) {
		s.managed(g)
		g.PathPattern, g.Artifacts[0].Namespace = "@mono/tenants/kube-{tenant}", "kube-{tenant}"
		g.Artifacts[0].Copy[0].From, g.ManagedNamespaces.AllowedNames = "@mono/tenants/**", []string{"true"}
	})
	s.NotReady(g, "captured", "AccessDenied", "Namespace 'kube-system' is never managed by a generator. Choose "+
		"another namespace in spec.artifacts, or rename the directory that it is captured from")

	t.Log("names that no expression allows are refused, also if an expression fails")
	s.tenants("refused", func(g *extensionsv1beta1.ArtifactGeneratorSpec) {
		s.managed(g)
		g.ManagedNamespaces.AllowedNames = []string{"ns.name == 'x'", "ns == 'other'"}
	})
	s.NotReady(g, "refused", "AccessDenied", "Correct the expression, or choose another namespace in spec.artifacts")
	s.tenants("others", func(g *extensionsv1beta1.ArtifactGeneratorSpec) {
		s.managed(g)
		g.ManagedNamespaces.AllowedNames = []string{"ns == 'other'"}
	})
	s.NotReady(g, "others", "AccessDenied", "Add an expression that allows it, or choose another namespace in "+
		"spec.artifacts")
	s.tenants("invalid", func(g *extensionsv1beta1.ArtifactGeneratorSpec) {
		s.managed(g)
		g.ManagedNamespaces.AllowedNames = []string{"ns +"}
	})
	s.NotReady(g, "invalid", "ValidationFailed", "spec.managedNamespaces.allowedNames: 'ns +' is not valid")

	t.Log("an existing Namespace is not taken over, nor deleted with the generator")
	s.tenants("thief", s.managed)
	s.NotReady(g, "thief", "AccessDenied", "To hand it over, run: kubectl label namespace "+s.Namespace+"-")
	if ns := s.namespaceOf("a", anyNamespace); ns.ResourceVersion != theirs.ResourceVersion {
		t.Errorf("the Namespace was written: %+v", ns)
	}
	if err := s.Client.Delete(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	s.Gone(g, "thief")
	if ns := s.namespaceOf("a", anyNamespace); !ns.DeletionTimestamp.IsZero() {
		t.Error("the Namespace of others was deleted")
	}
}

func TestNamespacesOfOtherGenerators(t *testing.T) {
	s := newTenants(t, "a")
	s.removeNamespaces("a", "victim")
	s.account("tenants", writesArtifacts, writesNamespaces)
	s.account("limited", writesArtifacts)
	g := &extensionsv1beta1.ArtifactGenerator{}

	t.Log("the account must be allowed to create the Namespace")
	s.tenants("limited", func(g *extensionsv1beta1.ArtifactGeneratorSpec) {
		s.managed(g)
		g.ServiceAccountName = "limited"
	})
	s.NotReady(g, "limited", "ReconciliationFailed", `limited" cannot create resource "namespaces"`)

	s.tenants("first", s.managed)
	first := s.settled("first")
	s.tenants("second", func(g *extensionsv1beta1.ArtifactGeneratorSpec) {
		s.managed(g)
		g.Artifacts[0].Name = "x-{tenant}"
	})
	s.NotReady(g, "second", "AccessDenied", "is managed by ArtifactGenerator '"+s.Namespace+"/first'")
	if err := s.Client.Delete(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	s.Gone(g, "second")
	if ns := s.namespaceOf("a", anyNamespace); !ns.DeletionTimestamp.IsZero() {
		t.Error("the Namespace of another generator was deleted")
	}

	t.Log("a label alone does not make a generator delete the Namespace of another")
	victim := s.given("victim", map[string]string{extensionsv1beta1.GeneratorLabel: string(first.UID)})
	s.Reconcile(g, "first")
	if err := s.Client.Delete(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	s.Gone(g, "first")
	s.deletesNamespace("a")
	if ns := s.namespaceOf("victim", anyNamespace); ns.UID != victim.UID || !ns.DeletionTimestamp.IsZero() {
		t.Error("a Namespace that was only labelled was deleted")
	}
}
