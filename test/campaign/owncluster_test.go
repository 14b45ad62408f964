package campaign

import "github.com/sluice-gitops/sluice/internal/testenv"

// These experiments stop the API server, and run controllers that watch all namespaces.
func init() { testenv.OwnCluster() }
