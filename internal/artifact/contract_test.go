package artifact_test

import (
	"testing"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/artifact/backendtest"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

func TestS3BackendContract(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", testenv.S3AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", testenv.S3SecretKey)
	for name, c := range map[string]struct {
		prefix string
		page   int
	}{
		"without a prefix": {prefix: "", page: 1000},
		"with a prefix":    {prefix: "clusters/1"},
	} {
		t.Run(name, func(t *testing.T) {
			server := testenv.ServeS3(t, t.TempDir())
			server.MakeBucket("artifacts")
			backendtest.Suite{
				Open: func() artifact.Backend {
					b, err := artifact.NewS3Backend(artifact.S3Options{Endpoint: server.URL, Bucket: "artifacts",
						Prefix: c.prefix, Region: "us-east-1"}, nil)
					if err != nil {
						t.Fatal(err)
					}
					return b
				},
				Stop:    server.Stop,
				Page:    c.page,
				Secrets: []string{testenv.S3SecretKey, "X-Amz-Signature"},
			}.Run(t)
		})
	}
}
