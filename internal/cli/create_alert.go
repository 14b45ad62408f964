package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sluice-gitops/sluice/api/meta"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	notificationv1beta3 "github.com/sluice-gitops/sluice/api/notification/v1beta3"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// createAlert is the flags of `create alert`.
type createAlert struct {
	provider, severity string
	sources            []string
	metadata           map[string]string
}

func (a *createAlert) bind(f *pflag.FlagSet) string {
	f.StringVar(&a.provider, "provider-ref", "", "Provider that sends the events")
	f.StringVar(&a.severity, "event-severity", notificationv1beta3.InfoSeverity,
		"info for all events, error for failures")
	f.StringSliceVar(&a.sources, "event-source", nil,
		"objects whose events count, as KIND/NAME[.NAMESPACE]; '*' is any name; may be given again")
	f.StringToStringVar(&a.metadata, "event-metadata", nil,
		"what to add to the metadata of events, such as summary=production,cluster=eu")
	return "--provider-ref slack --event-severity error --event-source 'Kustomization/*' --event-source " +
		"'GitRepository/*'"
}

func (a *createAlert) make(context.Context, *creation) (reconcile.Object, error) {
	if err := errors.Join(need("provider-ref", a.provider), need("event-source", strings.Join(a.sources, "")),
		oneOf("event-severity", a.severity, notificationv1beta3.InfoSeverity,
			notificationv1beta3.ErrorSeverity)); err != nil {
		return nil, err
	}
	spec := notificationv1beta3.AlertSpec{
		ProviderRef: meta.LocalObjectReference{Name: a.provider}, EventSeverity: a.severity, EventMetadata: a.metadata,
	}
	for _, text := range a.sources {
		kind, name, namespace, err := objects("event-source", text)
		if err != nil {
			return nil, err
		}
		spec.EventSources = append(spec.EventSources,
			notificationv1beta3.EventSource{Kind: kind, Name: name, Namespace: namespace})
	}
	return &notificationv1beta3.Alert{Spec: spec}, nil
}

// createProvider is the flags of `create alert-provider`.
type createProvider struct {
	kind, address, channel, username, secret string
}

func (p *createProvider) bind(f *pflag.FlagSet) string {
	f.StringVar(&p.kind, "type", "", "where events go, such as slack, msteams, generic or github")
	f.StringVar(&p.address, "address", "", "URL to send to; one that is secret goes into the key address of the Secret")
	f.StringVar(&p.channel, "channel", "", "channel to send to, where the type has some")
	f.StringVar(&p.username, "username", "", "name to send as, where the type has some")
	f.StringVar(&p.secret, "secret-ref", "", "Secret with the token, the address or the login")
	return "--type slack --channel ops --address https://slack.com/api/chat.postMessage --secret-ref slack"
}

func (p *createProvider) make(_ context.Context, c *creation) (reconcile.Object, error) {
	if err := need("type", p.kind); err != nil {
		return nil, err
	}
	return &notificationv1beta3.Provider{Spec: notificationv1beta3.ProviderSpec{
		Type: p.kind, Address: p.address, Channel: p.channel, Username: p.username, SecretRef: refer(p.secret),
		Interval: orUnset(c.interval.Duration),
	}}, nil
}

// createReceiver is the flags of `create receiver`.
type createReceiver struct {
	kind, secret      string
	events, resources []string
}

func (r *createReceiver) bind(f *pflag.FlagSet) string {
	f.StringVar(&r.kind, "type", "", "who sends the webhooks, such as github, gitlab, generic-hmac or harbor")
	f.StringSliceVar(&r.events, "event", nil, "events that are acted on, as the sender names them; all when unset")
	f.StringSliceVar(&r.resources, "resource", nil,
		"objects to wake, as KIND/NAME[.NAMESPACE]; '*' is any name; may be given again")
	f.StringVar(&r.secret, "secret-ref", "", "Secret with the token")
	return "--type github --event ping --event push --secret-ref webhook-token --resource GitRepository/app"
}

func (r *createReceiver) make(_ context.Context, c *creation) (reconcile.Object, error) {
	if err := errors.Join(need("type", r.kind), need("resource", strings.Join(r.resources, ""))); err != nil {
		return nil, err
	}
	if r.kind == notificationv1.GenericOIDCReceiver {
		return nil, usagef("--type %s: a Receiver of this type needs rules for tokens, which no flag has. Write it "+
			"as YAML; see docs/receiver.md", r.kind)
	}
	if err := need("secret-ref", r.secret); err != nil {
		return nil, err
	}
	spec := notificationv1.ReceiverSpec{Type: r.kind, Events: r.events, SecretRef: refer(r.secret),
		Interval: orUnset(c.interval.Duration)}
	for _, text := range r.resources {
		kind, name, namespace, err := objects("resource", text)
		if err != nil {
			return nil, err
		}
		spec.Resources = append(spec.Resources,
			notificationv1.ReceiverResource{Kind: kind, Name: name, Namespace: namespace})
	}
	return &notificationv1.Receiver{Spec: spec}, nil
}

// objects reads KIND/NAME[.NAMESPACE]. The kind may be in any case, as people type it.
func objects(flag, text string) (kind, name, namespace string, err error) {
	kind, name, _ = strings.Cut(text, "/")
	name, namespace, _ = strings.Cut(name, ".")
	if kind == "" || name == "" {
		return "", "", "", usagef("--%s %q: write it as KIND/NAME or KIND/NAME.NAMESPACE, such as Kustomization/app",
			flag, text)
	}
	if k := byWord(kind); k != nil {
		kind = k.title()
	}
	return kind, name, namespace, nil
}
