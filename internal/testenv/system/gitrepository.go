package system

import (
	"fmt"
	"strings"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// GitRepositoryReady waits until a GitRepository is Ready at a commit, and returns it.
func (s *System) GitRepositoryReady(name, commit string) *sourcev1.GitRepository {
	s.Helper()
	g := &sourcev1.GitRepository{}
	testenv.Eventually(s, name+" is fetched", func() error {
		if err := s.Get(g, name); err != nil {
			return err
		}
		if !reconcile.IsReady(g) || g.Status.Artifact == nil || !strings.HasSuffix(g.Status.Artifact.Revision, commit) {
			return fmt.Errorf("%+v", g.Status)
		}
		return nil
	})
	return g
}
