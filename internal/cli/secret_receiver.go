package cli

import (
	"context"
	"crypto/rand"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/internal/receiver/hook"
)

// receiverSecret is the flags of `create secret receiver`.
type receiverSecret struct{ kind, token, host, email, audience string }

func (s *receiverSecret) bind(f *pflag.FlagSet) string {
	f.StringVar(&s.kind, "type", "", "type of the Receiver, such as github or gcr")
	f.StringVar(&s.token, "token", "", "the secret that the sender signs with; a random one when unset")
	f.StringVar(&s.host, "hostname", "", "host under which the webhooks come in: tells the address of the webhook "+
		"of a Receiver of the same name")
	f.StringVar(&s.email, "email-claim", "", "service account that Pub/Sub pushes as, for the type gcr")
	f.StringVar(&s.audience, "audience-claim", "", "audience that Pub/Sub pushes with, for the type gcr")
	return "--type github --hostname hooks.example.com"
}

func (s *receiverSecret) make(_ context.Context, c *creation) error {
	if err := need("type", s.kind); err != nil {
		return err
	}
	if s.kind == notificationv1.GenericOIDCReceiver {
		return usagef("--type %s: a Receiver of this type has no Secret", s.kind)
	}
	if gcr := s.kind == notificationv1.GCRReceiver; gcr != (s.email != "") || gcr != (s.audience != "") {
		return usagef("--email-claim and --audience-claim are for --type %s, which needs both",
			notificationv1.GCRReceiver)
	}
	token, err := c.private("token", s.token)
	if err != nil {
		return err
	}
	if token == "" {
		token = rand.Text() + rand.Text()
	}
	data := map[string]string{"token": token}
	if s.email != "" {
		data["email"], data["audience"] = s.email, s.audience
	}
	if s.host != "" {
		host := strings.TrimSuffix(strings.TrimPrefix(s.host, "https://"), "/")
		c.step("the webhook of a Receiver of this name is https://%s%s", host, hook.Path(token, c.name, c.namespace()))
	}
	return c.give(corev1.SecretTypeOpaque, data)
}
