package pages

import (
	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// These tests install definitions and admission policies.
func init() {
	testenv.OwnCluster()
	log.SetLogger(logr.Discard())
}
