package gate

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	apimeta "k8s.io/apimachinery/pkg/api/meta"

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
		Help: "1 if the gate is open, 0 if it is closed.",
	}, []string{"namespace", "name"})

	waitingMetric = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sluice_gate_waiting",
		Help: "Number of objects that wait for the gate to open.",
	}, []string{"namespace", "name"})

	transitionsMetric = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_gate_transitions_total",
		Help: "Number of transitions of the gate by state, reason and requester. The requester is empty " +
			"unless the API " +
			"server verified it.",
	}, []string{"namespace", "name", "state", "reason", "by"})
)

// Metrics returns the metrics of gates.
func Metrics() []prometheus.Collector {
	return []prometheus.Collector{openedMetric, waitingMetric, transitionsMetric}
}

// recordMetrics updates the metrics of a gate, and counts its transition if that is not nil.
func recordMetrics(g *gatingv1.Gate, transition *gatingv1.HistoryEntry) {
	opened := 0.0
	if apimeta.IsStatusConditionTrue(g.Status.Conditions, gatingv1.OpenedCondition) {
		opened = 1
	}
	openedMetric.WithLabelValues(g.Namespace, g.Name).Set(opened)
	waitingMetric.WithLabelValues(g.Namespace, g.Name).Set(float64(g.Status.WaitingCount))
	if t := transition; t != nil {
		transitionsMetric.WithLabelValues(g.Namespace, g.Name, string(t.State), t.Reason, t.By).Inc()
	}
}

func deleteMetrics(g *gatingv1.Gate) {
	labels := prometheus.Labels{"namespace": g.Namespace, "name": g.Name}
	openedMetric.DeletePartialMatch(labels)
	waitingMetric.DeletePartialMatch(labels)
	transitionsMetric.DeletePartialMatch(labels)
}

// withEvent adds the event of a transition to an outcome.
func withEvent(o reconcile.Outcome, t *gatingv1.HistoryEntry) reconcile.Outcome {
	reason, text := eventClosed, "Gate closed"
	switch {
	case t.Reason == gatingv1.WhyOverridden:
		reason, text = eventOverridden, "Gate opened by override"
	case t.State == gatingv1.Opened:
		reason, text = eventOpened, "Gate opened"
	}
	headline := text
	o = o.WithMetadata("reason", t.Reason)
	if len(t.Revisions) > 0 {
		text += " for revision " + strings.Join(t.Revisions, ", ")
		o = o.WithMetadata("revision", strings.Join(t.Revisions, ","))
	}
	if t.By != "" {
		text += " by " + t.By
		o = o.WithMetadata("by", t.By)
	}
	if t.From != "" {
		text += " from " + t.From
		o = o.WithMetadata("from", t.From)
	}
	if t.Reason == gatingv1.WhyRevisionFailed {
		return o.Warn(reason, "%s", t.Message)
	}
	if strings.HasPrefix(t.Message, text) {
		return o.Note(reason, "%s", t.Message)
	}
	return o.Note(reason, "%s: %s", text, strings.TrimPrefix(t.Message, headline+": "))
}
