package provider

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"

	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// generic posts the event as it is.
type generic struct {
	client *client
	key    []byte // signs the body; nil if nothing does
}

func newGeneric(o Options) (Provider, error) {
	c, err := newClient(o, "")
	if err != nil {
		return nil, err
	}
	return &generic{client: c}, nil
}

func newGenericHMAC(o Options) (Provider, error) {
	key := o.secret("token")
	if key == "" {
		return nil, fault.New(TokenNotFound, "the Provider has no token to sign with").
			WithHint("Put it in the key token of the Secret that spec.secretRef names").Final()
	}
	c, err := newClient(o, "")
	if err != nil {
		return nil, err
	}
	return &generic{c, []byte(key)}, nil
}

// Send implements [Provider].
func (g *generic) Send(ctx context.Context, e event.Event) error {
	body, err := eventJSON(e)
	if err != nil {
		return err
	}
	headers := []string{"Content-Type", "application/json", "Gotk-Component", line(e.ReportingController)}
	if g.key != nil {
		mac := hmac.New(sha256.New, g.key)
		mac.Write(body)
		headers = append(headers, "X-Signature", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	}
	_, err = g.client.send(ctx, http.MethodPost, g.client.address, body, headers...)
	return err
}
