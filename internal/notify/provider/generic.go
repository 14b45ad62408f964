package provider

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"

	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// generic posts the event in the documented JSON format.
type generic struct {
	client *client
	key    []byte // HMAC key for the body; nil for none
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
		return nil, fault.New(TokenNotFound, "the Provider has no token for the signature").
			WithHint("Store it in the key token of the Secret in spec.secretRef").Final()
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
	headers := []string{"Content-Type", "application/json", "Gotk-Component", singleLine(e.ReportingController)}
	if g.key != nil {
		mac := hmac.New(sha256.New, g.key)
		mac.Write(body)
		headers = append(headers, "X-Signature", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	}
	_, err = g.client.send(ctx, http.MethodPost, g.client.address, body, headers...)
	return err
}
