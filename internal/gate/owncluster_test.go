package gate

import "github.com/sluice-gitops/sluice/internal/testenv"

// These tests change the definition of Kustomizations and the admission policies of gates.
func init() { testenv.OwnCluster() }
