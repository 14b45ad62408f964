package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/pflag"

	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// createAlert holds the flags of `create alert`.
type createAlert struct {
	spec    notificationv1.AlertSpec
	sources []string
}

func (a *createAlert) bind(f *pflag.FlagSet) string {
	f.StringVar(&a.spec.ProviderRef.Name, "provider-ref", "", "Provider that sends the events")
	f.StringVar(&a.spec.EventSeverity, "event-severity", notificationv1.InfoSeverity,
		"minimum severity: info for all events, error for failures only")
	f.StringSliceVar(&a.sources, "event-source", nil,
		"objects whose events are sent, as KIND/NAME[.NAMESPACE]; '*' is any name; can be repeated")
	f.StringToStringVar(&a.spec.EventMetadata, "event-metadata", nil,
		"metadata to add to events, such as summary=production,cluster=eu")
	return "--provider-ref slack --event-severity error --event-source 'Kustomization/*' --event-source " +
		"'GitRepository/*'"
}

func (a *createAlert) build(context.Context, *creation) (reconcile.Object, error) {
	if err := errors.Join(require("provider-ref", a.spec.ProviderRef.Name),
		require("event-source", strings.Join(a.sources, "")),
		oneOf("event-severity", a.spec.EventSeverity, notificationv1.InfoSeverity,
			notificationv1.ErrorSeverity)); err != nil {
		return nil, err
	}
	for _, text := range a.sources {
		kindName, name, namespace, err := parseObjects("event-source", text)
		if err != nil {
			return nil, err
		}
		a.spec.EventSources = append(a.spec.EventSources,
			notificationv1.EventSource{Kind: kindName, Name: name, Namespace: namespace})
	}
	return &notificationv1.Alert{Spec: a.spec}, nil
}

// createProvider holds the flags of `create alert-provider`.
type createProvider struct{ spec notificationv1.ProviderSpec }

func (p *createProvider) bind(f *pflag.FlagSet) string {
	f.StringVar(&p.spec.Type, "type", "", "type of the service, such as slack, msteams, generic or github")
	f.StringVar(&p.spec.Address, "address", "", "URL of the service; store a secret URL under the key address of the "+
		"Secret instead")
	f.StringVar(&p.spec.Channel, "channel", "", "channel to send to, if the type has channels")
	f.StringVar(&p.spec.Username, "username", "", "name of the sender, if the type supports it")
	refVar(f, &p.spec.SecretRef, "secret-ref", "Secret with the token, the address or the credentials")
	return "--type slack --channel ops --address https://slack.com/api/chat.postMessage --secret-ref slack"
}

func (p *createProvider) build(_ context.Context, c *creation) (reconcile.Object, error) {
	if err := require("type", p.spec.Type); err != nil {
		return nil, err
	}
	p.spec.Interval = optionalDuration(c.interval.Duration)
	return &notificationv1.Provider{Spec: p.spec}, nil
}

// createReceiver holds the flags of `create receiver`.
type createReceiver struct {
	receiverType, secret string
	events, resources    []string
}

func (r *createReceiver) bind(f *pflag.FlagSet) string {
	f.StringVar(&r.receiverType, "type", "", "sender of the webhooks, such as github, gitlab, generic-hmac or harbor")
	f.StringSliceVar(&r.events, "event", nil, "events to accept, in the format of the sender (default: all)")
	f.StringSliceVar(&r.resources, "resource", nil,
		"objects to reconcile, as KIND/NAME[.NAMESPACE]; '*' is any name; can be repeated")
	f.StringVar(&r.secret, "secret-ref", "", "Secret with the token")
	return "--type github --event ping --event push --secret-ref webhook-token --resource GitRepository/app"
}

func (r *createReceiver) build(_ context.Context, c *creation) (reconcile.Object, error) {
	if err := errors.Join(require("type", r.receiverType),
		require("resource", strings.Join(r.resources, ""))); err != nil {
		return nil, err
	}
	if r.receiverType == notificationv1.GenericOIDCReceiver {
		return nil, usagef("--type %s is not supported: this type needs rules for OIDC tokens. Write the Receiver "+
			"as YAML; see docs/receiver.md", r.receiverType)
	}
	if err := require("secret-ref", r.secret); err != nil {
		return nil, err
	}
	spec := notificationv1.ReceiverSpec{Type: r.receiverType, Events: r.events, SecretRef: localRef(r.secret),
		Interval: optionalDuration(c.interval.Duration)}
	for _, text := range r.resources {
		kindName, name, namespace, err := parseObjects("resource", text)
		if err != nil {
			return nil, err
		}
		spec.Resources = append(spec.Resources,
			notificationv1.ReceiverResource{Kind: kindName, Name: name, Namespace: namespace})
	}
	return &notificationv1.Receiver{Spec: spec}, nil
}

// parseObjects parses KIND/NAME[.NAMESPACE]. The kind may be any word for it, in any case.
func parseObjects(flag, text string) (kindName, name, namespace string, err error) {
	kindName, name, _ = strings.Cut(text, "/")
	name, namespace, _ = strings.Cut(name, ".")
	if kindName == "" || name == "" {
		return "", "", "", usagef("invalid --%s %q: use KIND/NAME or KIND/NAME.NAMESPACE, such as Kustomization/app",
			flag, text)
	}
	if k := kind.ByWord(kindName); k != nil {
		kindName = k.Name()
	}
	return kindName, name, namespace, nil
}
