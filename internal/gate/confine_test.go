package gate

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
)

// TestSelectionNeedsVerifiedAuthor has gates of namespace 'team' that select all namespaces.
func TestSelectionNeedsVerifiedAuthor(t *testing.T) {
	resource := schema.GroupResource{Group: gatingv1.GroupVersion.Group, Resource: "gates"}
	all := &gatingv1.NamespaceSelector{Labels: &metav1.LabelSelector{}}
	everywhere := withSelector(gatingv1.Selector{Namespaces: all})
	for name, c := range map[string]struct {
		answer     error // of the API server to a request in the name of another user; nil: the policy rejected it
		namespace  string
		before     bool // that the gate could select others, in an earlier verification
		wantOthers bool
	}{
		"the policy is enforced":     {namespace: "team", wantOthers: true},
		"the policy is not enforced": {answer: errAccepted, namespace: "team"},
		"the policy was removed":     {answer: errAccepted, namespace: "team", before: true},
		"a gate of the platform":     {answer: errAccepted, namespace: "sluice-system", wantOthers: true},
		"a quota of the tenant rejects the request": {
			answer: apierrors.NewForbidden(resource, "dry-run", errors.New("exceeded quota")), namespace: "team"},
		"the API server is not available": {
			answer: apierrors.NewServiceUnavailable("starting"), namespace: "team", before: true, wantOthers: true},
		"the connection broke": {answer: errors.New("EOF"), namespace: "team", before: true, wantOthers: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestIndex(t, kustomization("apps", "a"))
			s.PlatformNamespace = "sluice-system"
			verify := func(err error) { s.VerifySelection = answering(err) }
			g := newGate(c.namespace, "g", gatingv1.Closed, everywhere)
			if verify(c.answer); c.before {
				verify(nil)
			}
			s.Put(g)
			held := s.pass(s.objects[0])
			if c.before {
				if len(held) != 1 {
					t.Fatal("the verified gate does not hold objects of other namespaces")
				}
				s.dequeue()
				verify(c.answer)
				if err := s.CheckSelection(t.Context(), g); err == nil {
					t.Error("no error says why the author is not verified")
				}
				if n := s.dequeue(); (n > 0) == c.wantOthers {
					t.Errorf("%d objects are enqueued", n)
				}
				s.Put(g)
				held = s.pass(s.objects[0])
			}
			if (len(held) == 1) != c.wantOthers {
				t.Errorf("%d gates hold an object of another namespace, want %v", len(held), c.wantOthers)
			}
			if len(s.pass(kustomization(c.namespace, "own"))) != 1 {
				t.Error("the gate does not hold objects of its namespace")
			}
			if c.before && !c.wantOthers {
				verify(nil)
				holdsOthersAgain(t, s, g)
			}
		})
	}
}

// answering returns a verification by a dry run that the API server answers with err; nil if the policy rejected it.
func answering(err error) func(context.Context, *gatingv1.Gate) error {
	return func(context.Context, *gatingv1.Gate) error {
		if err != nil {
			return forSelections.fault("is not enforced", err)
		}
		return nil
	}
}

// holdsOthersAgain fails unless a gate that is verified again holds an object of another namespace.
func holdsOthersAgain(t *testing.T, s *testIndex, g *gatingv1.Gate) {
	t.Helper()
	if err := s.CheckSelection(t.Context(), g); err != nil || s.dequeue() == 0 || len(s.pass(s.objects[0])) != 1 {
		t.Errorf("the gate that is verified again does not hold others: %v", err)
	}
}

// TestUnverifiedSelectionOfAnotherGate creates a gate again: what was verified of the earlier one does not count.
func TestUnverifiedSelectionOfAnotherGate(t *testing.T) {
	s := newTestIndex(t, kustomization("apps", "a"))
	everywhere := withSelector(gatingv1.Selector{Namespaces: &gatingv1.NamespaceSelector{Names: []string{"apps"}}})
	first := newGate("team", "g", gatingv1.Closed, everywhere)
	second := newGate("team", "g", gatingv1.Closed, everywhere)
	first.UID, second.UID = types.UID("1"), types.UID("2")
	s.VerifySelection = func(_ context.Context, g *gatingv1.Gate) error {
		if g.UID == first.UID {
			return nil
		}
		return forSelections.fault("is not enforced", errAccepted)
	}
	s.Put(first)
	s.Put(second)
	if err := s.CheckSelection(t.Context(), first); err != nil { // a pass that began before
		t.Error(err)
	}
	if len(s.pass(s.objects[0])) != 0 {
		t.Error("a gate whose author is not verified holds an object of another namespace")
	}
}
