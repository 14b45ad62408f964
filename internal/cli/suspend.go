package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/model/kind"
)

// suspender is `sluice suspend` or `sluice resume` for one kind.
type suspender struct {
	*env
	kind    *kind.Kind
	suspend bool
	all     bool
	wait    bool
}

func newSuspendCommand(e *env) *cobra.Command {
	return newSuspenderCommand(e, "suspend", "Suspend objects: their controllers stop reconciling them", true)
}

func newResumeCommand(e *env) *cobra.Command {
	return newSuspenderCommand(e, "resume", "Resume suspended objects, and wait until they are Ready", false)
}

func newSuspenderCommand(e *env, verb, short string, suspend bool) *cobra.Command {
	c := newGroup(verb, short, fmt.Sprintf("  sluice %s source git app\n  sluice %s kustomization app other\n"+
		"  sluice %s ks --all", verb, verb, verb))
	e.addPerKind(c, func(k *kind.Kind) *cobra.Command {
		if k.SetSuspended == nil {
			return nil
		}
		s := &suspender{env: e, kind: k, suspend: suspend}
		sub := &cobra.Command{
			Use:     k.Words[0] + " NAME...",
			Aliases: k.Words[1:],
			Short:   short,
			Example: fmt.Sprintf("  sluice %s %s NAME\n  sluice %s %s --all", verb, k.Path(), verb, k.Path()),
			Args:    namesOrAll(&s.all),
			RunE:    e.bounded(s.run),
		}
		sub.Flags().BoolVar(&s.all, "all", false, "all objects in the namespace")
		if !suspend {
			sub.Flags().BoolVar(&s.wait, "wait", true, "wait until the objects are Ready")
		}
		return sub
	})
	return c
}

// run suspends or resumes the named objects, or all if none is named. After an error it continues with the next object.
func (s *suspender) run(ctx context.Context, names []string) error {
	c, err := s.Client()
	if err != nil {
		return err
	}
	if names, err = s.namesOrAll(ctx, c, s.kind, names); err != nil {
		return err
	}
	var failures []error
	var changed []types.NamespacedName
	for _, name := range names {
		key := s.key(name)
		if err := s.set(ctx, c, key); err != nil {
			failures = append(failures, err)
			continue
		}
		s.Done("%s '%s' %s", s.kind.Name(), key, map[bool]string{true: "suspended", false: "resumed"}[s.suspend])
		changed = append(changed, key)
	}
	if !s.wait {
		changed = nil
	}
	for _, key := range changed {
		if err := s.awaitReady(ctx, c, s.kind, key); err != nil {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

func (s *suspender) set(ctx context.Context, c client.Client, key types.NamespacedName) error {
	obj, err := cluster.Get(ctx, c, s.kind, key)
	if err != nil {
		return err
	}
	before := obj.DeepCopyObject().(client.Object)
	s.kind.SetSuspended(obj, s.suspend)
	return cluster.Explain(fmt.Sprintf("cannot change %s '%s'", s.kind.Name(), key),
		c.Patch(ctx, obj, client.MergeFrom(before)))
}
