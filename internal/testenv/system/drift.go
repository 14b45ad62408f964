package system

import (
	"fmt"
	"strings"

	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// HasEvent waits for an event about an object that says all of it, and returns how many there are of its reason.
func (s *System) HasEvent(name, reason string, says ...string) int {
	s.Helper()
	count := 0
	testenv.Eventually(s, "an event about "+name, func() error {
		var list eventsv1.EventList
		if err := s.Client.List(s.Context(), &list, client.InNamespace(s.Namespace)); err != nil {
			return err
		}
		count = 0
		var notes []string
		found := false
		for _, e := range list.Items {
			if e.Regarding.Name != name || e.Reason != reason {
				continue
			}
			count++
			notes = append(notes, e.Note)
			all := true
			for _, w := range says {
				all = all && strings.Contains(e.Note, w)
			}
			found = found || all
		}
		if !found {
			return fmt.Errorf("none of %s says %q: %q", reason, says, notes)
		}
		return nil
	})
	return count
}
