package cli

import (
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/gate"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// createGate holds the flags of `create gate`.
type createGate struct {
	state, overrun           string
	window, validFor         time.Duration
	schedule                 []string
	kinds, namespaces        []string
	objects                  map[string]string
	approvals                int32
	users, groups            []string
	allowManual, overridable bool
}

func (g *createGate) bind(f *pflag.FlagSet) string {
	f.StringVar(&g.state, "default", string(gatingv1.Closed),
		"state without a request or schedule: opened or closed")
	f.DurationVar(&g.window, "window", 0, "how long a request to open or close is in effect (default: until the next "+
		"request)")
	f.StringArrayVar(&g.schedule, "schedule", nil,
		"schedule entry, as STATE;CRON;DURATION[;ZONE] or STATE;DATE,DATE…[;DURATION[;ZONE]]; can be "+
			"repeated")
	f.BoolVar(&g.overridable, "overridable", true, "requests to open and close override the schedule")
	f.StringSliceVar(&g.kinds, "select-kinds", nil, "apply to objects of these kinds")
	f.StringSliceVar(&g.namespaces, "select-namespaces", nil,
		"apply to objects in these namespaces")
	f.StringToStringVar(&g.objects, "select-labels", nil, "apply to objects with these labels")
	f.Int32Var(&g.approvals, "approvals-required", 0, "number of required approvals")
	f.StringSliceVar(&g.users, "approver", nil, "users who may approve")
	f.StringSliceVar(&g.groups, "approver-group", nil, "groups whose members may approve")
	f.DurationVar(&g.validFor, "approvals-valid-for", 0, "how long approvals without an expiry are valid")
	f.BoolVar(&g.allowManual, "allow-manual", false, "let manually requested reconciles through")
	f.StringVar(&g.overrun, "overrun", gatingv1.OverrunFinish,
		"what happens to running reconciles when the gate closes: finish or stop")
	return `--default opened --schedule "closed;0 0 * * 5;24h;Europe/Berlin"`
}

func (g *createGate) build(_ context.Context, c *creation) (reconcile.Object, error) {
	if err := oneOf("default", g.state, string(gatingv1.Opened), string(gatingv1.Closed)); err != nil {
		return nil, err
	}
	if err := oneOf("overrun", g.overrun, gatingv1.OverrunFinish, gatingv1.OverrunStop); err != nil {
		return nil, err
	}
	spec := gatingv1.GateSpec{
		Interval: c.interval, Default: gatingv1.State(g.state), Window: optionalDuration(g.window),
		AllowManual: g.allowManual, Overrun: g.overrun, Selector: g.selector(),
	}
	if !g.overridable {
		spec.Overridable = &g.overridable
	}
	var err error
	if spec.Approvals, err = g.approvalRule(); err != nil {
		return nil, err
	}
	for _, text := range g.schedule {
		entry, err := scheduleEntry(text)
		if err != nil {
			return nil, err
		}
		spec.Schedule = append(spec.Schedule, entry)
	}
	made := &gatingv1.Gate{Spec: spec}
	if _, err := gate.InputOf(made); err != nil {
		return nil, usageError{err}
	}
	return made, nil
}

func (g *createGate) selector() *gatingv1.Selector {
	var s gatingv1.Selector
	for _, k := range g.kinds {
		s.Kinds = append(s.Kinds, gatingv1.SelectedKind(k))
	}
	if len(g.namespaces) > 0 {
		s.Namespaces = &gatingv1.NamespaceSelector{Names: g.namespaces}
	}
	if len(g.objects) > 0 {
		s.Objects = &metav1.LabelSelector{MatchLabels: g.objects}
	}
	return optional(s)
}

// approvalRule returns the required approvals, or nil for none.
func (g *createGate) approvalRule() (*gatingv1.Approvals, error) {
	rule := gatingv1.Approvals{Required: g.approvals, Users: g.users, Groups: g.groups,
		ValidFor: optionalDuration(g.validFor)}
	if g.approvals < 1 && optional(rule) != nil {
		return nil, usagef("--approvals-required must be at least 1 if other flags for approvals are set")
	}
	return optional(rule), nil
}

var scheduledDates = regexp.MustCompile(`^([0-9]{4}-)?[0-9]{2}-[0-9]{2}(,|$)`)

// scheduleEntry parses --schedule. It does not check that the calendar accepts the entry.
func scheduleEntry(text string) (gatingv1.ScheduleEntry, error) {
	fields := strings.Split(text, ";")
	for i := range fields {
		fields[i] = strings.TrimSpace(fields[i])
	}
	dates := len(fields) > 1 && scheduledDates.MatchString(fields[1])
	if len(fields) < 2 || len(fields) > 4 || len(fields) == 2 && !dates {
		return gatingv1.ScheduleEntry{}, usagef(
			`invalid --schedule %q: use "closed;0 0 * * 5;24h;Europe/Berlin" or "closed;12-24;24h;Europe/Berlin"`, text)
	}
	if err := oneOf("schedule", fields[0], string(gatingv1.Opened), string(gatingv1.Closed)); err != nil {
		return gatingv1.ScheduleEntry{}, err
	}
	entry := gatingv1.ScheduleEntry{State: gatingv1.State(fields[0]), Cron: fields[1]}
	if dates {
		entry.Cron, entry.Dates = "", strings.Split(fields[1], ",")
	}
	if len(fields) > 2 {
		d, err := time.ParseDuration(fields[2])
		if err != nil {
			return entry, usagef("invalid --schedule %q: %w", text, err)
		}
		entry.Duration = &meta.Duration{Duration: d}
	}
	if len(fields) > 3 {
		entry.TimeZone = fields[3]
	}
	return entry, nil
}
