package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/notify/alert"
	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// testReason is the reason of test events.
const testReason = "Test"

// alertTest is `sluice alert test`.
type alertTest struct {
	*env
	severity string
	metadata map[string]string
}

func newAlertCommand(e *env) *cobra.Command {
	c := newGroup("alert", "Test an alert", `  sluice alert test ops -n prod`)
	t := &alertTest{env: e}
	sub := &cobra.Command{
		Use: "test NAME", Short: "Send a test event through the Provider of an alert",
		Long: `Send a test event through the Provider of an alert, with the metadata of the
alert, and show the response.

The event is sent from this machine with your permissions: you need access to
the Secrets of the Provider, and to its address. Suspended alerts and Providers
are tested too.`,
		Example: `  sluice alert test ops -n prod
  sluice alert test ops -n prod --severity error
  sluice alert test statuses \
    --metadata revision=main@sha1:4f170ec80b4bd06d3d1d0e1e1f0f2a8d9c3b5a77  # for commit statuses`,
		Args:              exactlyOne,
		ValidArgsFunction: e.completeNames(kind.ByName(notificationv1.AlertKind)),
		RunE: e.bounded(func(ctx context.Context, args []string) error {
			return t.run(ctx, e.key(args[0]))
		}),
	}
	f := sub.Flags()
	f.StringVar(&t.severity, "severity", "", "info or error (default: that of the alert)")
	f.StringToStringVar(&t.metadata, "metadata", nil,
		"metadata of the event, such as revision=main@sha1:4f17…,change_request=42")
	c.AddCommand(sub)
	return c
}

func (t *alertTest) run(ctx context.Context, key types.NamespacedName) error {
	if err := optionalOneOf("severity", t.severity, event.Info, event.Error); err != nil {
		return err
	}
	c, err := t.Client()
	if err != nil {
		return err
	}
	found, err := t.get(ctx, c, notificationv1.AlertKind, key)
	if err != nil {
		return err
	}
	a := found.(*notificationv1.Alert)
	ref := types.NamespacedName{Namespace: key.Namespace, Name: a.Spec.ProviderRef.Name}
	if found, err = t.get(ctx, c, notificationv1.ProviderKind, ref); err != nil {
		return err
	}
	provider := found.(*notificationv1.Provider)
	err = t.send(ctx, c, provider, a)
	if f := fault.As(err); f != nil {
		if f.RetryAfter > 0 {
			t.Step("the server asks to retry after %s", f.RetryAfter)
		}
	}
	if err != nil {
		return fmt.Errorf("Provider '%s' (type %s) did not send the event: %s", ref, provider.Spec.Type, onceOnly(err))
	}
	t.Done("Provider '%s' (type %s) sent the event", ref, provider.Spec.Type)
	return nil
}

// onceOnly returns the text of an error without the retries that only the controllers make.
func onceOnly(err error) string {
	return strings.NewReplacer("The event will be retried", "The test is not retried: run it again",
		"The request is retried later", "The test is not retried: run it again later").Replace(err.Error())
}

func (t *alertTest) send(ctx context.Context, c client.Client, provider *notificationv1.Provider,
	a *notificationv1.Alert) error {
	ctx, cancel := context.WithTimeout(ctx, provider.GetTimeout())
	defer cancel()
	resolver := alert.Resolver{Secrets: c, Egress: &egress.Policy{RefuseLinkLocal: true},
		Identities: &auth.Identities{}, Clock: clock.RealClock{}}
	sender, err := resolver.Provider(ctx, provider)
	if err != nil {
		return err
	}
	return sender.Send(ctx, t.testEvent(a))
}

// get returns an object, and prints a hint if it is suspended.
func (t *alertTest) get(ctx context.Context, c client.Client, kindName string,
	key types.NamespacedName) (reconcile.Object, error) {
	k := kind.ByName(kindName)
	o, err := cluster.Get(ctx, c, k, key)
	if err == nil && o.Schedule().Suspended {
		t.Step("%s '%s' is suspended: it sends only test events. Run sluice resume %s %s -n %s", kindName, key,
			k.Path(), key.Name, key.Namespace)
	}
	return o, err
}

// testEvent returns an event about the first object that the alert selects.
func (t *alertTest) testEvent(a *notificationv1.Alert) event.Event {
	source := notificationv1.EventSource{Kind: notificationv1.AlertKind, Name: a.Name}
	if len(a.Spec.EventSources) > 0 {
		source = a.Spec.EventSources[0]
	}
	object := corev1.ObjectReference{Kind: source.Kind, Namespace: cmp.Or(source.Namespace, a.Namespace),
		Name: source.Name}
	if object.Name == notificationv1.Any {
		object.Name = "example"
	}
	if object.Namespace == notificationv1.Any {
		object.Namespace = a.Namespace
	}
	metadata := map[string]string{}
	maps.Copy(metadata, a.Spec.EventMetadata)
	if a.Spec.Summary != "" {
		metadata[event.Summary] = a.Spec.Summary
	}
	maps.Copy(metadata, t.metadata)
	return event.Event{
		InvolvedObject: object, Severity: cmp.Or(t.severity, a.Spec.EventSeverity, event.Info),
		Timestamp: metav1.Now(), Reason: testReason,
		Message: fmt.Sprintf("This is a test of Alert '%s', sent by sluice alert test. No action is required",
			client.ObjectKeyFromObject(a)),
		Metadata: metadata, ReportingController: "sluice-cli",
	}
}
