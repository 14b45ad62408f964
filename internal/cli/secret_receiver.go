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

// receiverSecret holds the flags of `create secret receiver`.
type receiverSecret struct{ receiverType, token, host, email, audience string }

func (s *receiverSecret) bind(f *pflag.FlagSet) string {
	f.StringVar(&s.receiverType, "type", "", "type of the Receiver, such as github or gcr")
	f.StringVar(&s.token, "token", "", "secret that the sender signs with; - reads it from standard input "+
		"(default: random)")
	f.StringVar(&s.host, "hostname", "", "host of the webhook server, to print the address of the webhook of a "+
		"Receiver with the same name")
	f.StringVar(&s.email, "email-claim", "", "e-mail address of the service account of Pub/Sub, for the type gcr")
	f.StringVar(&s.audience, "audience-claim", "", "audience of the tokens of Pub/Sub, for the type gcr")
	return "--type github --hostname hooks.example.com"
}

func (s *receiverSecret) build(_ context.Context, c *creation) error {
	if err := require("type", s.receiverType); err != nil {
		return err
	}
	if s.receiverType == notificationv1.GenericOIDCReceiver {
		return usagef("--type %s is not supported: Receivers of this type have no Secret", s.receiverType)
	}
	if gcr := s.receiverType == notificationv1.GCRReceiver; gcr != (s.email != "") || gcr != (s.audience != "") {
		return usagef("--email-claim and --audience-claim must both be set for --type %s, and for no other type",
			notificationv1.GCRReceiver)
	}
	token, err := c.readSecret("token", s.token)
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
		c.Step("the webhook of a Receiver with this name is https://%s%s", host,
			hook.Path(token, c.name, c.Namespace()))
	}
	return c.setSecret(corev1.SecretTypeOpaque, data)
}
