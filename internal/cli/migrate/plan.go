package migrate

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Plan is what a migration would do, as data.
type Plan struct {
	Namespace   string       `json:"namespace"`
	Scope       Scope        `json:"scope"`
	Controllers []Controller `json:"controllers"`
	Missing     []string     `json:"missing,omitempty"` // controllers that Flux usually has
	Definitions []Definition `json:"definitions"`
	Objects     []Object     `json:"objects"`
	Settings    []Setting    `json:"settings"`
	Starts      Settings     `json:"starts"`     // what our controllers are started with
	IsInstance  bool         `json:"isInstance"` // a FluxInstance deploys Flux
	Comparisons []Comparison `json:"comparisons"`
	Syncs       []Sync       `json:"syncs,omitempty"`
	Warnings    []string     `json:"warnings,omitempty"`
	Blockers    []string     `json:"blockers,omitempty"` // what must be solved first
	Steps       []string     `json:"steps"`
	Resumes     *State       `json:"resumes,omitempty"` // an earlier migration of the cluster

	definitions []*definition
}

// Comparison is what our controllers would do to the objects that an object applied.
type Comparison struct {
	Ref
	Unchanged int      `json:"unchanged"`         // number of applied objects
	Changes   []string `json:"changes,omitempty"` // such as "ConfigMap/apps/web configured"
	Skipped   string   `json:"skipped,omitempty"` // why nothing had to be compared; "" if it had
	// Failed says why our controllers could not build or apply it; "" if they could.
	Failed string `json:"failed,omitempty"`
	// Files are the files of its source that only our artifact has.
	Files []string `json:"files,omitempty"`
	// Warnings say what of it was not compared.
	Warnings []string `json:"warnings,omitempty"`
}

// IsBlocked reports whether something must be solved before the migration.
func (p *Plan) IsBlocked() bool { return len(p.Blockers) > 0 }

func (p *Plan) warn(format string, args ...any) {
	if w := fmt.Sprintf(format, args...); !slices.Contains(p.Warnings, w) {
		p.Warnings = append(p.Warnings, w)
	}
}

func (p *Plan) block(format string, args ...any) {
	if b := fmt.Sprintf(format, args...); !slices.Contains(p.Blockers, b) {
		p.Blockers = append(p.Blockers, b)
	}
}

// NotFoundError reports that a namespace has no controllers of Flux.
type NotFoundError struct{ Namespace string }

// Error implements error.
func (e NotFoundError) Error() string {
	return fmt.Sprintf("namespace '%s' has no controllers of Flux. Choose another with -n, or run sluice install",
		e.Namespace)
}

// Plan reads the cluster and returns what a migration would do. It writes nothing; comparisons are dry-runs.
func (e *Engine) Plan(ctx context.Context) (*Plan, error) {
	state, err := e.State(ctx)
	if err != nil {
		return nil, err
	}
	p := &Plan{Namespace: e.Namespace, Resumes: state}
	if state != nil {
		e.extend(state, p)
	}
	p.Scope = e.Scope
	if p.Controllers, err = e.controllers(ctx); err != nil {
		return nil, err
	}
	if len(p.Controllers) == 0 {
		return nil, NotFoundError{e.Namespace}
	}
	if p.definitions, err = e.definitions(ctx); err != nil {
		return nil, err
	}
	for _, d := range p.definitions {
		p.Definitions = append(p.Definitions, d.Definition)
	}
	if p.Objects, err = e.objects(ctx, p.definitions); err != nil {
		return nil, err
	}
	p.Syncs = e.syncs(p.Controllers, p.Objects)
	var warnings []string
	p.Starts, p.Settings, warnings = e.settings(p.Controllers)
	p.Warnings = append(p.Warnings, warnings...)
	if err := e.check(ctx, p); err != nil {
		return nil, err
	}
	e.compare(ctx, p)
	p.Steps = e.describe(p)
	return p, nil
}

// extend adds what an earlier migration took over to the scope. An interrupted migration continues as it began.
func (e *Engine) extend(s *State, p *Plan) {
	switch {
	case s.Direction == Backward:
		p.block("a rollback was interrupted in step '%s'. Run sluice migrate flux --rollback to complete it", s.Step)
	case !s.Done || s.Scope.IsComplete():
		e.Scope = s.Scope
	case e.Scope.IsComplete():
		return
	case len(e.Scope.Controllers) > 0 != (len(s.Scope.Controllers) > 0):
		p.block("an earlier migration took over %s. Continue with the same flag, or migrate everything",
			strings.Join(append(s.Scope.Controllers, s.Scope.Namespaces...), ", "))
	default:
		e.Scope.Controllers = union(e.Scope.Controllers, s.Scope.Controllers)
		e.Scope.Namespaces = union(e.Scope.Namespaces, s.Scope.Namespaces)
	}
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// appliers are the kinds that apply objects.
var appliers = []string{"Kustomization", "HelmRelease", "ResourceSet"}

// compare adds what our controllers would do to applied objects.
func (e *Engine) compare(ctx context.Context, p *Plan) {
	for _, o := range p.Objects {
		if e.Compare == nil || !o.Moves || !slices.Contains(appliers, o.Kind) {
			continue
		}
		c := Comparison{Ref: o.Ref}
		switch {
		case o.Suspended:
			c.Skipped = "suspended"
		case o.Ready != "True":
			c.Skipped = "not Ready"
		case !e.isSharded() && slices.ContainsFunc(p.Syncs, func(s Sync) bool { return s.Ref == o.Ref }):
			c.Skipped = "deploys Flux: it stays suspended until its repository deploys Sluice"
		default:
			e.waiting("comparing " + o.String())
			c = e.Compare(ctx, o, p.Starts)
			c.Ref = o.Ref
		}
		e.judge(p, c)
		p.Comparisons = append(p.Comparisons, c)
	}
}

// judge adds what a comparison found.
func (e *Engine) judge(p *Plan, c Comparison) {
	for _, w := range c.Warnings {
		p.warn("%s: %s", c.Ref, w)
	}
	if c.Failed != "" {
		p.block("%s cannot be applied by Sluice: %s. Solve this first, or skip all comparisons with --no-diff", c.Ref,
			c.Failed)
	}
	if len(c.Changes) == 0 {
		return
	}
	changes := strings.Join(c.Changes, ", ")
	if len(c.Files) > 0 {
		changes += fmt.Sprintf(". The artifact of Flux lacks %s that Sluice has: %s",
			plural(len(c.Files), "file"), strings.Join(c.Files[:min(len(c.Files), namedFiles)], ", "))
	}
	if e.AllowChanges {
		p.warn("%s: Sluice would change what it applied: %s", c.Ref, changes)
		return
	}
	p.block("%s: Sluice would change what it applied: %s. Look at the changes with sluice diff, or accept them with "+
		"--allow-changes", c.Ref, changes)
}

// namedFiles is the number of files that a problem names.
const namedFiles = 5

// describe returns the steps of the migration for people.
func (e *Engine) describe(p *Plan) (steps []string) {
	if e.SuspendSync {
		for _, s := range p.Syncs {
			if !s.Suspended {
				steps = append(steps, "suspend "+s.String())
			}
		}
	}
	moved := 0
	for _, o := range p.Objects {
		if o.Moves {
			moved++
		}
	}
	if e.isSharded() {
		steps = append(steps, fmt.Sprintf("label %s of the namespaces %s with %s=%s", plural(moved, "object"),
			strings.Join(e.Scope.Namespaces, ", "), ShardLabel, ShardKey))
	} else {
		for _, c := range p.Controllers {
			if c.Moves {
				steps = append(steps, fmt.Sprintf("scale Deployment '%s' from %d to 0 and wait for its lease",
					c.Deployment, c.Replicas))
			}
		}
	}
	return append(steps,
		fmt.Sprintf("replace %s by those of Sluice", plural(len(p.Definitions), "CustomResourceDefinition")),
		"start the controllers of Sluice: "+strings.Join(p.Starts.Controllers, ", "),
		fmt.Sprintf("request a reconcile of %s, and wait until all are Ready again", plural(len(awaited(p)), "object")))
}

// awaited returns the objects that must be Ready again.
func awaited(p *Plan) (refs []Ref) {
	for _, o := range p.Objects {
		if o.isAwaited() {
			refs = append(refs, o.Ref)
		}
	}
	return refs
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
