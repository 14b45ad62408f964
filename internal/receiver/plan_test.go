package receiver

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/internal/fault"
)

func TestHintFitsTheResource(t *testing.T) {
	r := &notificationv1.Receiver{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "hook"}}
	plans := &Plans{NoCrossNamespaceRefs: true}
	for _, c := range []struct {
		resource notificationv1.ReceiverResource
		want     string
	}{
		{resource: notificationv1.ReceiverResource{Kind: "Pod", Name: "a"}, want: "Correct its kind"},
		{resource: notificationv1.ReceiverResource{Kind: "GitRepository", Name: "a", APIVersion: "apps/v1"},
			want: "The group is source.toolkit.fluxcd.io; apiVersion may be omitted"},
		{resource: notificationv1.ReceiverResource{Kind: "Gate", Name: "a", Namespace: "other"},
			want: "Create the Receiver in the namespace of the Gate"},
		{resource: notificationv1.ReceiverResource{Kind: "GitRepository", Name: "a", Namespace: "other"},
			want: "Create the Receiver in that namespace, or run the controllers without --no-cross-namespace-refs"},
		{resource: notificationv1.ReceiverResource{Kind: "GitRepository", Name: "*"},
			want: "Set matchLabels, or the name of an object"},
		{resource: notificationv1.ReceiverResource{Kind: "Gate", Name: "a"}, want: "Set spec.action to open or close"},
	} {
		_, err := plans.target(r, c.resource)
		if f := fault.As(err); f == nil || f.Hint != c.want {
			t.Errorf("%v: got %v, want the hint %q", c.resource, err, c.want)
		}
	}
	if f := fault.As(invalid("spec.resourceFilter", errors.New("syntax"))); f == nil || f.Hint != "Correct it" {
		t.Errorf("got %v, want a hint", f)
	}
}
