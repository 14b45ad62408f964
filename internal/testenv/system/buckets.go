package system

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// Bucket creates the bucket "apps" of a server as a source, with a Secret of the server's keys.
func (s *System) Bucket(server *testenv.S3, change ...func(*sourcev1.Bucket)) {
	s.Helper()
	s.Secret("keys", map[string]string{"accesskey": testenv.S3AccessKey, "secretkey": testenv.S3SecretKey})
	b := &sourcev1.Bucket{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "apps"},
		Spec: sourcev1.BucketSpec{
			Provider: sourcev1.ProviderGeneric, Endpoint: server.Endpoint, BucketName: "apps", Region: "us-east-1",
			Insecure: true,
			Interval: metav1.Duration{Duration: time.Hour}, SecretRef: &meta.LocalObjectReference{Name: "keys"},
		},
	}
	for _, c := range change {
		c(b)
	}
	s.Create(b)
}
