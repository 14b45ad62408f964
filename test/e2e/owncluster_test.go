package e2e

import "github.com/sluice-gitops/sluice/internal/testenv"

// These tests run controllers that watch all namespaces, and install definitions.
func init() { testenv.OwnCluster() }
