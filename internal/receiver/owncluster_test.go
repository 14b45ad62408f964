package receiver_test

import "github.com/sluice-gitops/sluice/internal/testenv"

// These tests run controllers that watch all namespaces.
func init() { testenv.OwnCluster() }
