package receiver

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/internal/testenv/stubsecrets"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func TestHintsOfSecrets(t *testing.T) {
	plans := &Plans{Secrets: stubsecrets.Reader{"empty": nil, "token": {"token": []byte("x")}}}
	for _, c := range []struct{ kind, secret, want string }{
		{kind: "generic", want: "Set it to a Secret with the key token"},
		{kind: "generic", secret: "none", want: "Create it with the key token or correct spec.secretRef"},
		{kind: "generic", secret: "empty",
			want: "Set it to a random text, and configure the sender of the webhook with it"},
		{kind: "gcr", secret: "token", want: "Set them to the service account and the audience of the push " +
			"authentication of the Pub/Sub subscription"},
	} {
		r := &notificationv1.Receiver{Spec: notificationv1.ReceiverSpec{Type: c.kind}}
		if c.secret != "" {
			r.Spec.SecretRef = &meta.LocalObjectReference{Name: c.secret}
		}
		_, err := plans.trust(t.Context(), r)
		if f := fault.As(err); f == nil || f.Hint != c.want {
			t.Errorf("%s with Secret %q: got %v, want the hint %q", c.kind, c.secret, err, c.want)
		}
	}
}

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
	_, err := providers([]notificationv1.OIDCProvider{{IssuerURL: "https://issuer.example"}})
	if f := fault.As(err); f == nil || f.Hint != "Add a validation that restricts which tokens are accepted" {
		t.Errorf("got %v", err)
	}
	if f := fault.As(invalid("spec.resourceFilter", errors.New("syntax"))); f == nil ||
		f.Hint != "Correct the expression; for the "+
			"syntax see https://cel.dev" {
		t.Errorf("got %v, want a hint", f)
	}
}
