package kubeclient

import "github.com/sluice-gitops/sluice/internal/testenv"

// These tests measure how fast a replica takes over, with no other load on the API server.
func init() { testenv.OwnCluster() }
