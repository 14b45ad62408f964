package ui

import "github.com/sluice-gitops/sluice/internal/testenv"

// These tests show the objects of all namespaces.
func init() { testenv.OwnCluster() }
