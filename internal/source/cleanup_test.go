package source_test

import (
	"context"
	"errors"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/source"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/definitions"
	"github.com/sluice-gitops/sluice/internal/testenv/s3server"
)

// TestCleanupOfTheBackendIsTriedAgain has a bucket that does not answer at first. It has the artifact of an object that
// was deleted before the process started.
func TestCleanupOfTheBackendIsTriedAgain(t *testing.T) {
	definitions.Install(t, testenv.Cluster(t))
	c, err := client.New(testenv.Cluster(t), client.Options{Scheme: kubeclient.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	server := s3server.New(t)
	t.Setenv("AWS_ACCESS_KEY_ID", s3server.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s3server.SecretKey)
	backend, err := artifact.NewS3Backend(artifact.S3Options{Endpoint: server.URL, Bucket: "artifacts"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	store, err := artifact.OpenStore(t.TempDir(), "artifacts.example:80", artifact.Retention{Count: 2},
		artifact.WithBackend(backend))
	if err != nil {
		t.Fatal(err)
	}
	clock := testclock.NewFakeClock(time.Now().Add(-time.Hour))
	cleanup := &source.Cleanup{Store: store, Reader: c, Namespace: testenv.Namespace(t), Clock: clock}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- cleanup.RunShared(ctx) }()
	testenv.Eventually(t, "the cleanup waits", func() error {
		if !clock.HasWaiters() {
			return errors.New("it does not")
		}
		return nil
	})
	server.MakeBucket("artifacts")
	testenv.Eventually(t, "the cleanup ends", func() error {
		clock.Step(time.Minute)
		select {
		case err := <-ended:
			return err
		default:
			return errors.New("it has not")
		}
	})
}
