package kubeclient

import (
	"os"
	"testing"

	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/s3server"
)

// These tests run many replicas, some of which must not lose their leases.
func init() { testenv.OwnCluster() }

// TestMain sets the login of the S3 servers of all tests, so that they can run in parallel.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": s3server.AccessKey,
		"AWS_SECRET_ACCESS_KEY": s3server.SecretKey} {
		if err := os.Setenv(name, value); err != nil {
			panic(err) // no name is invalid
		}
	}
	os.Exit(m.Run())
}
