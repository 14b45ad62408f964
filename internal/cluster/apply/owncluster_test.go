package apply

import "github.com/sluice-gitops/sluice/internal/testenv"

// These tests configure admission webhooks and definitions.
func init() { testenv.OwnCluster() }
