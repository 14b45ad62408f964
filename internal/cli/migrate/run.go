package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// stage is one step of a migration in one direction. It must have the same effect when it runs again.
type stage struct {
	name, message string
	run           func(ctx context.Context, s *State) error
}

// BlockedError reports that a plan has blockers.
type BlockedError struct{ Blockers []string }

// Error implements error.
func (e BlockedError) Error() string {
	return fmt.Sprintf("the migration is blocked: %s must be solved first", plural(len(e.Blockers), "problem"))
}

// RolledBackError reports that a migration failed, and that the cluster is back with Flux.
type RolledBackError struct{ Cause error }

// Error implements error.
func (e RolledBackError) Error() string {
	return fmt.Sprintf("the migration failed and was rolled back; Flux runs again: %v", e.Cause)
}

// Unwrap returns why the migration failed.
func (e RolledBackError) Unwrap() error { return e.Cause }

// Run does what a plan says, or continues an interrupted migration. If a step fails after Flux was stopped, Run rolls
// back and returns a [RolledBackError]. If the context is canceled, Run stops where it is: the next run continues.
func (e *Engine) Run(ctx context.Context, p *Plan) error {
	if p.IsBlocked() {
		return BlockedError{p.Blockers}
	}
	s, err := e.begin(ctx, p)
	if err != nil {
		return err
	}
	err = e.do(ctx, s, e.forward())
	if err == nil || errors.Is(ctx.Err(), context.Canceled) {
		return err
	}
	e.step(fmt.Sprintf("failed: %v; rolling back", err))
	if back := e.Rollback(context.WithoutCancel(ctx)); back != nil {
		return fmt.Errorf("the migration failed: %w, and the rollback failed: %w. Run sluice migrate flux --rollback "+
			"again", err, back)
	}
	return RolledBackError{err}
}

// Rollback returns the cluster to Flux, as the state of the migration says.
func (e *Engine) Rollback(ctx context.Context) error {
	s, err := e.State(ctx)
	if err != nil {
		return err
	}
	if s == nil {
		return fmt.Errorf("no migration is recorded in namespace '%s': nothing to roll back", e.Namespace)
	}
	e.Scope = s.Scope
	if s.Direction != Backward {
		s.Direction, s.Step, s.Done = Backward, "", false
		if err := e.save(ctx, s); err != nil {
			return err
		}
	}
	if err := e.do(ctx, s, e.backward()); err != nil {
		return err
	}
	return e.Client.Delete(ctx, s.configMap) // the state describes nothing any longer
}

// do runs stages. The state names the running one.
func (e *Engine) do(ctx context.Context, s *State, stages []stage) error {
	for _, stage := range stages {
		s.Step = stage.name
		if err := e.save(ctx, s); err != nil {
			return err
		}
		e.step(stage.message)
		if err := stage.run(ctx, s); err != nil {
			return fmt.Errorf("step '%s': %w", stage.name, err)
		}
	}
	s.Done = true
	return e.save(ctx, s)
}

func (e *Engine) forward() []stage {
	return []stage{
		{name: "suspend-sync", message: "suspending what deploys Flux", run: e.suspendSyncs},
		{name: "stop-flux", message: "stopping the controllers of Flux", run: e.stopFlux},
		{name: "definitions", message: "installing the CustomResourceDefinitions of Sluice", run: e.installDefinitions},
		{name: "start-sluice", message: "starting the controllers of Sluice", run: e.startOurs},
		{name: "wait-ready", message: "waiting until all objects are Ready as before", run: e.waitReady},
	}
}

func (e *Engine) backward() []stage {
	return []stage{
		{name: "stop-sluice", message: "stopping the controllers of Sluice", run: e.stopOurs},
		{name: "restore-definitions", message: "restoring the CustomResourceDefinitions of Flux",
			run: e.restoreSaved},
		{name: "remove-sluice", message: "removing what runs Sluice", run: e.removeOurs},
		{name: "start-flux", message: "starting the controllers of Flux", run: e.startFlux},
		{name: "resume-sync", message: "resuming what the migration suspended", run: e.resumeSyncs},
	}
}

// begin saves the intent of a plan, or returns that of an interrupted or complete migration which the plan continues.
func (e *Engine) begin(ctx context.Context, p *Plan) (*State, error) {
	s, err := e.State(ctx)
	if err != nil {
		return nil, err
	}
	switch {
	case s == nil:
		s = &State{ID: e.Now().UTC().Format("2006-01-02T15:04:05.000000000Z"), Direction: Forward}
	case s.Direction == Backward:
		return nil, errors.New("a rollback was interrupted. Run sluice migrate flux --rollback to complete it")
	case !s.Done:
		return s, nil
	}
	s.Scope, s.Settings, s.Ready, s.Done = e.Scope, p.Starts, awaited(p), false
	if e.isSharded() {
		for _, o := range p.Objects {
			if o.Moves && o.live.GetLabels()[ShardLabel] != ShardKey {
				s.Labelled = append(s.Labelled, o.Ref)
			}
		}
	} else {
		e.rememberDeployments(s, p.Controllers)
	}
	if err := e.keepReplaced(ctx, s, p); err != nil {
		return nil, err
	}
	return s, e.save(ctx, s)
}

// rememberDeployments adds the Deployments that are scaled down, except those of an earlier migration.
func (e *Engine) rememberDeployments(s *State, controllers []Controller) {
	for _, c := range controllers {
		known := slices.ContainsFunc(s.Deployments, func(d SavedDeployment) bool { return d.Name == c.Deployment })
		if c.Moves && !known {
			s.Deployments = append(s.Deployments, SavedDeployment{Name: c.Deployment, Controller: c.Name,
				Replicas: c.Replicas})
		}
	}
}

// keepReplaced saves the definitions of Flux, and its objects that ours replace, such as Services. It notes which
// of our
// objects do not exist yet.
func (e *Engine) keepReplaced(ctx context.Context, s *State, p *Plan) error {
	isKept := func(u *unstructured.Unstructured) bool {
		return slices.ContainsFunc(s.saved, func(k *unstructured.Unstructured) bool {
			return k.GetKind() == u.GetKind() && k.GetName() == u.GetName()
		}) || slices.ContainsFunc(s.Created, func(r Ref) bool { return r.Kind == u.GetKind() && r.Name == u.GetName() })
	}
	for _, d := range p.definitions {
		if !isKept(d.live) {
			s.keep(d.live)
		}
	}
	objects, err := e.manifests(p.Starts)
	if err != nil {
		return err
	}
	for _, u := range objects {
		if u.GetKind() == "Namespace" || isKept(u) {
			continue
		}
		live, err := e.getIfExists(ctx, refOf(u))
		if err != nil {
			return err
		}
		if live == nil {
			s.Created = append(s.Created, refOf(u))
		} else {
			s.keep(live)
		}
	}
	return nil
}

// suspendSyncs suspends the objects that deploy Flux, and notes which.
func (e *Engine) suspendSyncs(ctx context.Context, s *State) error {
	if !e.SuspendSync || e.isSharded() {
		return nil
	}
	controllers, err := e.controllers(ctx)
	if err != nil {
		return err
	}
	definitions, err := e.definitions(ctx)
	if err != nil {
		return err
	}
	objects, err := e.objects(ctx, definitions)
	if err != nil {
		return err
	}
	var refs []Ref
	for _, sync := range e.syncs(controllers, objects) {
		if !sync.Suspended {
			refs = append(refs, sync.Ref)
		}
	}
	if len(refs) == 0 {
		return nil
	}
	s.Suspended = append(s.Suspended, refs...)
	s.Ready = slices.DeleteFunc(s.Ready, func(r Ref) bool { return slices.Contains(refs, r) })
	if err := e.save(ctx, s); err != nil {
		return err
	}
	for _, ref := range refs {
		if err := e.suspend(ctx, ref, true); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) resumeSyncs(ctx context.Context, s *State) error {
	for _, ref := range s.Suspended {
		if err := e.suspend(ctx, ref, false); err != nil {
			return err
		}
	}
	return nil
}
