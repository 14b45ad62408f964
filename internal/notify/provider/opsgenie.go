package provider

import (
	"context"
	"encoding/hex"
	"maps"

	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// opsgenie creates alerts: https://docs.opsgenie.com/docs/alert-api#create-alert.
type opsgenie struct {
	client *client
	token  string
}

func newOpsgenie(o Options) (Provider, error) {
	token, err := o.token("an Opsgenie API key")
	if err != nil {
		return nil, err
	}
	c, err := newClient(o, "https://api.opsgenie.com/v2/alerts")
	if err != nil {
		return nil, err
	}
	return &opsgenie{c, token}, nil
}

// opsgenieAlert is the body of the request; limits of the API are in characters.
type opsgenieAlert struct {
	Message     string            `json:"message"`     // 130
	Alias       string            `json:"alias"`       // 512; an open alert with the same alias is counted up
	Description string            `json:"description"` // 15,000
	Entity      string            `json:"entity"`      // 512
	Source      string            `json:"source"`      // 100
	Priority    string            `json:"priority"`
	Tags        []string          `json:"tags"`
	Details     map[string]string `json:"details"` // 8,000 in total
}

// Send implements [Provider].
func (p *opsgenie) Send(ctx context.Context, e event.Event) error {
	m := MessageOf(e)
	a := opsgenieAlert{
		Message: excerpt.Chars(m.Title(), 130), Description: plainText(m), Entity: excerpt.Chars(m.Object, 512),
		Source: excerpt.Chars(m.From, 100), Tags: []string{m.Severity()},
		Details: details(e, 20, maxField),
	}
	maps.Copy(a.Details, map[string]string{"severity": m.Severity(), "reason": m.Reason})
	if m.Failed {
		a.Alias, a.Priority = "sluice-"+objectKey(e), "P3"
	} else { // must not count up the alert of a failure
		sum := fingerprint(e)
		a.Alias, a.Priority = "sluice-"+hex.EncodeToString(sum[:]), "P5"
	}
	_, err := p.client.postJSON(ctx, p.client.address, a, "Authorization", "GenieKey "+p.token)
	return err
}
