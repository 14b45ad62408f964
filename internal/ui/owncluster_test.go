package ui

import "github.com/sluice-gitops/sluice/internal/testenv"

// These tests list the objects of all namespaces.
func init() { testenv.OwnCluster() }
