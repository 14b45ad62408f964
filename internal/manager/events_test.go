package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Those of one object and one reason say different things: each is written, in order, although the API server
// does not take one at first, and one never.
func TestEventsAreWrittenInOrder(t *testing.T) {
	const all = 100
	var written []string
	names := map[string]bool{}
	failed := false
	r := &recorder{scheme: Scheme(), log: logr.Discard(), waiting: make(chan *eventsv1.Event, all),
		create: func(_ context.Context, e *eventsv1.Event) error {
			switch {
			case e.Note == "event 7" && !failed:
				failed = true
				return errors.New("the connection is refused")
			case e.Note == "event 8":
				return apierrors.NewForbidden(schema.GroupResource{}, e.Name, nil)
			}
			written = append(written, e.Note)
			names[e.Name] = true
			return nil
		}}
	about := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "app", ResourceVersion: "1"}}
	var want []string
	for i := range all + 1 { // one more than there is room for
		r.AnnotatedEventf(about, nil, nil, corev1.EventTypeNormal, "Succeeded", "Reconcile", "event %d", i)
		if i != 8 && i != all {
			want = append(want, fmt.Sprintf("event %d", i))
		}
	}
	end := make(chan struct{})
	close(end)
	r.run(t.Context(), end)
	if !slices.Equal(written, want) || len(names) != len(want) {
		t.Errorf("%q were written under %d names, want %q", written, len(names), want)
	}
}
