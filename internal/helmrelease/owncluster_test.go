package helmrelease_test

import "github.com/sluice-gitops/sluice/internal/testenv"

// These tests install definitions with charts, and count the requests for discovery.
func init() { testenv.OwnCluster() }
