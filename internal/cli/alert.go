package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/notification/v1beta3"
	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/egress"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/notify/alert"
	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// testReason is the reason of the event that is sent for a try.
const testReason = "Test"

// alertTest is one run of `alert test`.
type alertTest struct {
	*app
	severity string
	metadata map[string]string
}

func (a *app) alert() *cobra.Command {
	c := group("alert", "Try an alert out", `  sluice alert test ops -n prod`)
	t := &alertTest{app: a}
	sub := &cobra.Command{
		Use: "test NAME", Short: "Send a sample event as an alert would, and show what the other side answers",
		Long: `Send a sample event by the Provider of an alert, with the metadata of the alert, and show what the other side answers.

It is sent from here and with what you may read of the cluster: Secrets of the Provider, and hosts that only the cluster reaches, may be out of
reach. It is sent even if the alert or its Provider is suspended.`,
		Example: `  sluice alert test ops -n prod
  sluice alert test ops -n prod --severity error
  sluice alert test statuses --metadata revision=main@sha1:4f170ec80b4bd06d3d1d0e1e1f0f2a8d9c3b5a77  # types that write commit statuses need one`,
		Args:              exactlyOne,
		ValidArgsFunction: a.completeNames(byTitle(v1beta3.AlertKind)),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
			defer cancel()
			return t.run(ctx, types.NamespacedName{Namespace: a.namespace(), Name: args[0]})
		},
	}
	f := sub.Flags()
	f.StringVar(&t.severity, "severity", "", "info or error (default: that of the alert)")
	f.StringToStringVar(&t.metadata, "metadata", nil,
		"metadata of the event, such as revision=main@sha1:4f17…,change_request=42")
	c.AddCommand(sub)
	return c
}

func (t *alertTest) run(ctx context.Context, key types.NamespacedName) error {
	if t.severity != "" {
		if err := oneOf("severity", t.severity, event.Info, event.Error); err != nil {
			return err
		}
	}
	c, err := t.client()
	if err != nil {
		return err
	}
	found, err := t.fetch(ctx, c, v1beta3.AlertKind, key)
	if err != nil {
		return err
	}
	of := found.(*v1beta3.Alert)
	ref := types.NamespacedName{Namespace: key.Namespace, Name: of.Spec.ProviderRef.Name}
	if found, err = t.fetch(ctx, c, v1beta3.ProviderKind, ref); err != nil {
		return err
	}
	by := found.(*v1beta3.Provider)
	ctx, cancel := context.WithTimeout(ctx, by.GetTimeout())
	defer cancel()
	resolver := alert.Resolver{Secrets: c, Egress: &egress.Policy{RefuseLinkLocal: true},
		Identities: &auth.Identities{}, Clock: clock.RealClock{}}
	sender, err := resolver.Provider(ctx, by)
	if err == nil {
		err = sender.Send(ctx, t.sample(of))
	}
	if f := fault.As(err); f != nil && f.RetryAfter > 0 {
		t.step("the host asks to wait for %s", f.RetryAfter)
	}
	if err != nil {
		return fmt.Errorf("Provider '%s' of type %s did not send the event: %w", ref, by.Spec.Type, err)
	}
	t.done("Provider '%s' of type %s took the event", ref, by.Spec.Type)
	return nil
}

// fetch gets an object, and says so if it is suspended.
func (t *alertTest) fetch(ctx context.Context, c client.Client, title string,
	key types.NamespacedName) (reconcile.Object, error) {
	k := byTitle(title)
	o, err := fetch(ctx, c, k, key)
	if err == nil && o.Schedule().Suspended {
		t.step("%s '%s' is suspended: nothing else is sent until you run sluice resume %s %s -n %s", title, key,
			k.path(), key.Name, key.Namespace)
	}
	return o, err
}

// sample is an event of the first object that the alert is about.
func (t *alertTest) sample(of *v1beta3.Alert) event.Event {
	source := v1beta3.EventSource{Kind: v1beta3.AlertKind, Name: of.Name}
	if len(of.Spec.EventSources) > 0 {
		source = of.Spec.EventSources[0]
	}
	object := corev1.ObjectReference{Kind: source.Kind, Namespace: cmp.Or(source.Namespace, of.Namespace),
		Name: source.Name}
	if object.Name == v1beta3.Any {
		object.Name = "example"
	}
	if object.Namespace == v1beta3.Any {
		object.Namespace = of.Namespace
	}
	metadata := map[string]string{}
	maps.Copy(metadata, of.Spec.EventMetadata)
	if of.Spec.Summary != "" {
		metadata[event.Summary] = of.Spec.Summary
	}
	maps.Copy(metadata, t.metadata)
	return event.Event{
		InvolvedObject: object, Severity: cmp.Or(t.severity, of.Spec.EventSeverity, event.Info),
		Timestamp: metav1.Now(), Reason: testReason,
		Message: fmt.Sprintf("This is a test of Alert '%s', sent by sluice alert test: nothing happened, and there "+
			"is nothing to do", client.ObjectKeyFromObject(of)),
		Metadata: metadata, ReportingController: "sluice-cli",
	}
}
