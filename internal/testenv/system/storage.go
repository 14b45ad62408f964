package system

import (
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// StoredArtifact waits until a GitRepository has an artifact, and returns it.
func (s *System) StoredArtifact(name, commit string) *meta.Artifact {
	s.Helper()
	g := &sourcev1.GitRepository{}
	testenv.Eventually(s, name+" has an artifact", func() error {
		if err := s.Get(g, name); err != nil {
			return err
		}
		if g.Status.Artifact == nil || !strings.HasSuffix(g.Status.Artifact.Revision, commit) {
			return fmt.Errorf("%+v", g.Status.Conditions)
		}
		return nil
	})
	return g.Status.Artifact
}

// ServiceAccountToken makes a ServiceAccount, and returns a token of it.
func (s *System) ServiceAccountToken(name string, audiences ...string) string {
	s.Helper()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}}
	s.Create(sa)
	return s.Token(sa, audiences...)
}

func (s *System) Token(sa *corev1.ServiceAccount, audiences ...string) string {
	s.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	if err := s.Client.SubResource("token").Create(s.Context(), sa, request); err != nil {
		s.Fatal(err)
	}
	return request.Status.Token
}

// GrantGet lets a service account get one object.
func (s *System) GrantGet(account, group, resource, object string) {
	s.Helper()
	name := metav1.ObjectMeta{Namespace: s.Namespace, Name: account}
	s.Create(&rbacv1.Role{ObjectMeta: name, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: []string{object},
			Verbs: []string{"get"}},
	}})
	s.Create(&rbacv1.RoleBinding{ObjectMeta: name,
		RoleRef:  rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: account},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: s.Namespace, Name: account}}})
	testenv.Eventually(s, account+" may get it", func() error { // the API server's authorizer lags behind
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + s.Namespace + ":" + account,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Group: group, Resource: resource,
				Namespace: s.Namespace, Name: object},
		}}
		if err := s.Client.Create(s.Context(), review); err != nil || !review.Status.Allowed {
			return fmt.Errorf("%+v, %w", review.Status, err)
		}
		return nil
	})
}
