package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func (a *app) suspend() *cobra.Command {
	return a.toggle("suspend", "Stop reconciling objects; what they made stays", true)
}

func (a *app) resume() *cobra.Command {
	return a.toggle("resume", "Go on reconciling objects, and wait until they are Ready", false)
}

// toggle makes the commands that set whether an object is suspended.
func (a *app) toggle(verb, short string, suspend bool) *cobra.Command {
	c := group(verb, short, fmt.Sprintf("  sluice %s source git app\n  sluice %s kustomization app other\n"+
		"  sluice %s ks --all", verb, verb, verb))
	a.perKind(c, func(k *kind) *cobra.Command {
		if k.suspend == nil {
			return nil
		}
		var all bool
		wait := !suspend
		sub := &cobra.Command{
			Use:     k.words[0] + " NAME...",
			Aliases: k.words[1:],
			Short:   short,
			Example: fmt.Sprintf("  sluice %s %s NAME\n  sluice %s %s --all", verb, k.path(), verb, k.path()),
			Args:    namesOr(&all),
			RunE: func(cmd *cobra.Command, args []string) error {
				ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
				defer cancel()
				return a.setSuspended(ctx, k, args, suspend, wait)
			},
		}
		sub.Flags().BoolVar(&all, "all", false, "all objects of the namespace")
		if !suspend {
			sub.Flags().BoolVar(&wait, "wait", true, "wait until they are Ready")
		}
		return sub
	})
	return c
}

// namesOr wants names, or the flag that stands for all.
func namesOr(all *bool) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if (len(args) == 0) != *all {
			return usagef("name objects, or say --all for all of the namespace. See %s --help", cmd.CommandPath())
		}
		return nil
	}
}

// setSuspended suspends or resumes the named objects, or all when none is named. One that fails does not keep
// it from the others.
func (a *app) setSuspended(ctx context.Context, k *kind, names []string, suspend, wait bool) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	if names, err = a.orAll(ctx, c, k, names); err != nil {
		return err
	}
	var failures []error
	var changed []types.NamespacedName
	for _, name := range names {
		key := types.NamespacedName{Namespace: a.namespace(), Name: name}
		obj, err := fetch(ctx, c, k, key)
		if err == nil {
			before := obj.DeepCopyObject().(client.Object)
			k.suspend(obj, suspend)
			err = explain(fmt.Sprintf("cannot change %s '%s'", k.title(), key),
				c.Patch(ctx, obj, client.MergeFrom(before)))
		}
		if err != nil {
			failures = append(failures, err)
			continue
		}
		a.done("%s '%s' %s", k.title(), key, map[bool]string{true: "suspended", false: "resumed"}[suspend])
		changed = append(changed, key)
	}
	if !wait {
		changed = nil
	}
	for _, key := range changed {
		obj, err := a.await(ctx, c, k, key, settled)
		if err == nil {
			err = a.verdict(k, obj)
		}
		if err != nil {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}
