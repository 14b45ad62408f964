package reconcile

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
)

// oneObject is a client of one object.
type oneObject struct {
	client.Client
	object *sourcev1.GitRepository
}

// status writes the status of an object.
type status struct {
	client.SubResourceWriter
	of *oneObject
}

func (c *oneObject) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	c.object.DeepCopyInto(into.(*sourcev1.GitRepository))
	return nil
}

func (c *oneObject) Status() client.SubResourceWriter { return status{of: c} }

func (s status) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	s.of.object = o.DeepCopyObject().(*sourcev1.GitRepository)
	return nil
}

func TestHintsOfObjectsThatAreNotReconciled(t *testing.T) {
	c := &oneObject{object: &sourcev1.GitRepository{}}
	l := newLoop(&Kernel{Client: c, Events: EmitToAll()}, Kind[*sourcev1.GitRepository]{
		New: func() *sourcev1.GitRepository { return &sourcev1.GitRepository{} }})
	if err := l.reportSuspect(t.Context(), &sourcev1.GitRepository{}, 3, time.Minute); err != nil {
		t.Fatal(err)
	}
	const suspect = "It is tried again later. Check whether its content is very large, and the memory limit of the " +
		"controller (SLU-1012)"
	if ready := apimeta.FindStatusCondition(c.object.Status.Conditions, TypeReady); ready == nil ||
		!strings.HasSuffix(ready.Message, suspect) {
		t.Errorf("got %+v, want the hint %q", ready, suspect)
	}

	obj := &sourcev1.GitRepository{}
	if err := json.Unmarshal([]byte(`{"spec":{"interval":"banana"}}`), obj); err != nil {
		t.Fatal(err)
	}
	outcome := l.step(t.Context(), &Pass[*sourcev1.GitRepository]{Object: obj})
	if want := "Correct these fields; the object is not reconciled until then"; !strings.HasSuffix(outcome.String(),
		want) || outcome.reason != meta.InvalidSpecReason {
		t.Errorf("got %s, want the hint %q", outcome, want)
	}
}
