package system

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// ServiceAccountConfig returns access to the cluster by a token of a service account, and by nothing else.
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
