package cli

import "github.com/sluice-gitops/sluice/internal/testenv"

// These tests install, upgrade and remove the definitions, and stop other installations.
func init() { testenv.OwnCluster() }
