package artifact_test

import (
	"net/http/httptest"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/artifact/backendtest"
	"github.com/sluice-gitops/sluice/internal/testenv/s3server"
)

func TestS3BackendContract(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", s3server.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s3server.SecretKey)
	for name, c := range map[string]struct {
		prefix string
		page   int
	}{
		"without a prefix": {prefix: "", page: 1000},
		"with a prefix":    {prefix: "clusters/1"},
	} {
		t.Run(name, func(t *testing.T) {
			server := s3server.Serve(t, t.TempDir())
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
				Secrets: []string{s3server.SecretKey, "X-Amz-Signature"},
			}.Run(t)
		})
	}
}

// TestS3BackendContractOfAnotherServer runs the suite against gofakes3, which has no code in common with the server of
// the playground.
func TestS3BackendContractOfAnotherServer(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", s3server.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s3server.SecretKey)
	storage := s3mem.New()
	if err := storage.CreateBucket("artifacts"); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(gofakes3.New(storage).Server())
	t.Cleanup(server.Close)
	backendtest.Suite{
		Open: func() artifact.Backend {
			b, err := artifact.NewS3Backend(artifact.S3Options{Endpoint: server.URL, Bucket: "artifacts",
				Region: "us-east-1"}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return b
		},
		Stop:    server.Close,
		Page:    1000,
		Secrets: []string{s3server.SecretKey, "X-Amz-Signature"},
	}.Run(t)
}
