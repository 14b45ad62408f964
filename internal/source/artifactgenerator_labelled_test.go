package source_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/source"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// TestLabelledOutputsDoNotBlockAGenerator has an ExternalArtifact in another namespace with the label and the reference
// of a generator, whose account may not delete it: the generator neither fails, nor is kept from being deleted.
func TestLabelledOutputsDoNotBlockAGenerator(t *testing.T) {
	s := newTenants(t, "a", "b")
	s.removeNamespaces("a", "b")
	own, other := s.given("a", nil), s.given("b", nil)
	s.Create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "tenant"}})
	for _, o := range []client.Object{
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: own.Name, Name: "tenant"},
			Rules: []rbacv1.PolicyRule{writesArtifacts}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: own.Name, Name: "tenant"},
			RoleRef:  rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "tenant"},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "tenant", Namespace: s.Namespace}}},
	} {
		s.Create(o)
	}
	s.tenants("victim", func(g *extensionsv1beta1.ArtifactGeneratorSpec) {
		g.ServiceAccountName, g.PathPattern = "tenant", ""
		output := system.ArtifactOutput("out", "@mono/tenants/a/**")
		output.Namespace = own.Name
		g.Artifacts = []extensionsv1beta1.OutputArtifact{output}
	})
	g := s.settled("victim")
	labelled := &sourcev1.ExternalArtifact{ObjectMeta: metav1.ObjectMeta{Namespace: other.Name, Name: "labelled",
		Labels: map[string]string{extensionsv1beta1.GeneratorLabel: string(g.UID)}},
		Spec: sourcev1.ExternalArtifactSpec{SourceRef: &meta.ObjectReference{
			Kind: extensionsv1beta1.ArtifactGeneratorKind, APIVersion: extensionsv1beta1.GroupVersion.String(),
			Namespace: s.Namespace, Name: "victim"}}}
	s.Create(labelled)
	s.RequestReconcile(g, "victim")
	g = s.settled("victim")
	if err := s.Client.Delete(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	s.Gone(g, "victim")
	if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(labelled), labelled); err != nil {
		t.Errorf("an object that the generator did not write: %v", err)
	}
}

// TestControllerWritesTheStatusOfOutputs has an account whose writes of a status are refused, as policy sluice-status
// does: the controller writes for it what it may write by its role, and nothing else.
func TestControllerWritesTheStatusOfOutputs(t *testing.T) {
	s := newHarness(t)
	o := &sourcev1.ExternalArtifact{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "out"}}
	s.Create(o)
	refusing := func(account client.WithWatch) client.Client {
		return interceptor.NewClient(account, interceptor.Funcs{SubResourcePatch: func(context.Context, client.Client,
			string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "externalartifacts"}, "out", nil)
		}})
	}
	s.Create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "writer"}})
	s.Create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "reader"}})
	s.GrantAll("writer")
	for account, allowed := range map[string]bool{"writer": true, "reader": false} {
		c, err := client.NewWithWatch(s.ServiceAccountConfig(testenv.Cluster(t), account),
			client.Options{Scheme: s.Client.Scheme()})
		if err != nil {
			t.Fatal(err)
		}
		outputs := source.Outputs{Client: refusing(c), Reader: s.Client, Status: s.Client}
		published, err := outputs.Publish(t.Context(), o.DeepCopy(), &meta.Artifact{Path: "p/" + account,
			URL: "http://x/p", Revision: account,
			Digest:         "sha256:0000000000000000000000000000000000000000000000000000000000000000",
			LastUpdateTime: meta.TimeOf(time.Now())}, nil)
		if published != allowed || (err == nil) != allowed {
			t.Errorf("%s: published %t, %v", account, published, err)
		}
		if hint := "Grant it the verb patch on externalartifacts/status in namespace '" + s.Namespace + "'"; !allowed &&
			(fault.As(err) == nil || fault.As(err).Hint != hint) {
			t.Errorf("%s: %v", account, err)
		}
	}
}
