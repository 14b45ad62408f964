package migrate

import "github.com/sluice-gitops/sluice/internal/testenv"

// These tests replace the definitions of all kinds.
func init() { testenv.OwnCluster() }
