package bench

import "github.com/sluice-gitops/sluice/internal/testenv"

// The benchmarks measure the processor time of the API server.
func init() { testenv.OwnCluster() }
