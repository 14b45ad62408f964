package system

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// GrantAll lets a service account do everything in the namespace, and waits until the API server allows it.
func (s *System) GrantAll(account string) {
	s.Helper()
	s.Create(&rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: account},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}},
	})
	s.Create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: account},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: account},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: account, Namespace: s.Namespace}},
	})
	s.Allowed(account)
}

// GrantGet lets a service account get one object, and waits until the API server allows it.
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
	s.awaitRight(account, true, authorizationv1.ResourceAttributes{Verb: "get", Group: group, Resource: resource,
		Name: object})
}

// Allowed waits until the API server allows a service account everything in the namespace.
func (s *System) Allowed(account string) {
	s.Helper()
	s.awaitRight(account, true, authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"})
}

// Refused waits until the API server does not allow a service account to change ConfigMaps of the namespace.
func (s *System) Refused(account string) {
	s.Helper()
	s.awaitRight(account, false, authorizationv1.ResourceAttributes{Verb: "patch", Resource: "configmaps"})
}

// awaitRight is [testenv.AwaitRight] of a service account in the namespace.
func (s *System) awaitRight(account string, allowed bool, right authorizationv1.ResourceAttributes) {
	s.Helper()
	right.Namespace = s.Namespace
	testenv.AwaitRight(s, authorizationv1.SubjectAccessReviewSpec{
		User: "system:serviceaccount:" + s.Namespace + ":" + account, ResourceAttributes: &right}, allowed)
}

// ServiceAccountToken creates a service account and returns a token of it.
func (s *System) ServiceAccountToken(name string, audiences ...string) string {
	s.Helper()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}}
	s.Create(sa)
	return s.Token(sa, audiences...)
}

// Token returns a token of a service account.
func (s *System) Token(sa *corev1.ServiceAccount, audiences ...string) string {
	s.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	if err := s.Client.SubResource("token").Create(s.Context(), sa, request); err != nil {
		s.Fatal(err)
	}
	return request.Status.Token
}

// ServiceAccountConfig returns access to the cluster by a token of a service account only.
func (s *System) ServiceAccountConfig(cfg *rest.Config, account string) *rest.Config {
	s.Helper()
	request := &authenticationv1.TokenRequest{}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: account}}
	if err := s.Client.SubResource("token").Create(s.Context(), sa, request); err != nil {
		s.Fatal(err)
	}
	own := rest.AnonymousClientConfig(cfg)
	own.BearerToken = request.Status.Token
	return own
}
