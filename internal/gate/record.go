package gate

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// Reasons of the events of transitions.
const (
	eventOpened     = "GateOpened"
	eventClosed     = "GateClosed"
	eventOverridden = "GateOverridden"
)

var (
	openedMetric = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sluice_gate_opened",
		Help: "1 if the gate is open, else 0.",
	}, []string{"namespace", "name"})

	waitingMetric = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sluice_gate_waiting",
		Help: "The number of objects that wait for the gate to open.",
	}, []string{"namespace", "name"})

	transitionsMetric = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_gate_transitions_total",
		Help: "How often the gate came into a state, for which reason, and who asked for it if the API server " +
			"vouches for the name.",
	}, []string{"namespace", "name", "state", "reason", "by"})
)

func init() { metrics.Registry.MustRegister(openedMetric, waitingMetric, transitionsMetric) }

// observe counts a transition, if there is one, and shows the gate as it is.
func observe(g *gatingv1.Gate, turned *gatingv1.HistoryEntry) {
	opened := 0.0
	if g.Status.History[0].State == gatingv1.Opened {
		opened = 1
	}
	openedMetric.WithLabelValues(g.Namespace, g.Name).Set(opened)
	waitingMetric.WithLabelValues(g.Namespace, g.Name).Set(float64(g.Status.WaitingCount))
	if turned != nil {
		transitionsMetric.WithLabelValues(g.Namespace, g.Name, string(turned.State), turned.Reason, turned.By).Inc()
	}
}

func forget(g *gatingv1.Gate) {
	labels := prometheus.Labels{"namespace": g.Namespace, "name": g.Name}
	openedMetric.DeletePartialMatch(labels)
	waitingMetric.DeletePartialMatch(labels)
	transitionsMetric.DeletePartialMatch(labels)
}

// announce adds the event of a transition to an outcome: what it is, why, who asked for it, and by what client.
func announce(o reconcile.Outcome, turned *gatingv1.HistoryEntry) reconcile.Outcome {
	reason, text := eventClosed, "Gate closed"
	switch {
	case turned.Reason == gatingv1.WhyOverridden:
		reason, text = eventOverridden, "Gate opened by override"
	case turned.State == gatingv1.Opened:
		reason, text = eventOpened, "Gate opened"
	}
	o = o.WithMetadata("reason", turned.Reason)
	if len(turned.Revisions) > 0 {
		text += " for revision " + strings.Join(turned.Revisions, ", ")
		o = o.WithMetadata("revision", strings.Join(turned.Revisions, ","))
	}
	if turned.By != "" {
		text += " by " + turned.By
		o = o.WithMetadata("by", turned.By)
	}
	if turned.From != "" {
		text += " from " + turned.From
		o = o.WithMetadata("from", turned.From)
	}
	return o.Note(reason, "%s: %s", text, turned.Message)
}
