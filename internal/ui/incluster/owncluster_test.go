package incluster_test

import "github.com/sluice-gitops/sluice/internal/testenv"

// These tests grant rights in the whole cluster.
func init() { testenv.OwnCluster() }
