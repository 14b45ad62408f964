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

// Send implements [Provider].
func (p *opsgenie) Send(ctx context.Context, e event.Event) error {
	m := MessageOf(e)
	metadata := details(e, 20, maxField) // 8,000 characters in total
	maps.Copy(metadata, map[string]string{"severity": m.Severity(), "reason": m.Reason})
	a := object{"message": excerpt.Chars(m.Title(), 130), "description": plainText(m),
		"entity": excerpt.Chars(m.Object, 512), "source": excerpt.Chars(m.From, 100), "tags": []string{m.Severity()},
		"details": metadata}
	if m.Failed { // an open alert with the same alias is counted up
		a["alias"], a["priority"] = "sluice-"+objectKey(e), "P3"
	} else { // must not count up the alert of a failure
		sum := fingerprint(e)
		a["alias"], a["priority"] = "sluice-"+hex.EncodeToString(sum[:]), "P5"
	}
	_, err := p.client.postJSON(ctx, p.client.address, a, "Authorization", "GenieKey "+p.token)
	return err
}
