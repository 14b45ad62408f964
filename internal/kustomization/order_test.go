package kustomization_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// TestAChangeIsAppliedBeforeOthersNoteTheRevision changes one of many Kustomizations of a source by a commit. One pass
// runs at a time.
func TestAChangeIsAppliedBeforeOthersNoteTheRevision(t *testing.T) {
	t.Parallel()
	const apps = 15
	s := newHarness(t, func(o *options.Options) { o.Concurrent = 1 })
	name := func(app int) string { return fmt.Sprintf("app-%02d", app) }
	files := map[string]string{}
	for app := range apps {
		files[name(app)+"/cm.yaml"] = system.ConfigMap(name(app), "1")
	}
	commit := s.Git.Commit("fleet", files)
	s.GitRepository("fleet")
	for app := range apps {
		s.Kustomization(name(app), "fleet", name(app))
	}
	for app := range apps {
		s.Ready(name(app), commit)
	}
	for _, changed := range []int{9, 3} {
		s.Requests.Reset()
		commit = s.Git.Commit("fleet", map[string]string{
			name(changed) + "/cm.yaml": system.ConfigMap(name(changed), "changed")})
		s.RequestFetch("fleet")
		for app := range apps {
			s.Ready(name(app), commit)
		}
		written := s.Requests.Matching("/kustomizations/app-")
		if len(written) != apps || !strings.Contains(written[0], name(changed)+"/status") {
			t.Errorf("%s changed, the order of the status writes is %q", name(changed), written)
		}
		s.ConfigMapHas(name(changed), "changed")
	}
}
