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

// toggle makes the commands that set spec.suspend.
func (a *app) toggle(verb, short string, suspend bool) *cobra.Command {
	c := group(verb, short, fmt.Sprintf("  sluice %s source git app\n  sluice %s kustomization app other\n  sluice %s ks --all", verb, verb, verb))
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
			Args: func(cmd *cobra.Command, args []string) error {
				if (len(args) == 0) != all {
					return usagef("name objects, or say --all for all of the namespace. See %s --help", cmd.CommandPath())
				}
				return nil
			},
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

// setSuspended sets spec.suspend of the named objects, or of all when none is named. One that fails does not keep it from the others.
func (a *app) setSuspended(ctx context.Context, k *kind, names []string, suspend, wait bool) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	if len(names) == 0 {
		list := k.list()
		if err := c.List(ctx, list, client.InNamespace(a.namespace())); err != nil {
			return explain("cannot list "+k.title()+" objects", err)
		}
		objects, err := items(list)
		if err != nil {
			return err
		}
		if len(objects) == 0 {
			a.step("no %s in namespace %s", k.title(), a.namespace())
		}
		for _, o := range objects {
			names = append(names, o.GetName())
		}
	}
	var failures []error
	var changed []types.NamespacedName
	for _, name := range names {
		key := types.NamespacedName{Namespace: a.namespace(), Name: name}
		obj, err := fetch(ctx, c, k, key)
		if err == nil {
			before := obj.DeepCopyObject().(client.Object)
			k.suspend(obj, suspend)
			err = explain(fmt.Sprintf("cannot change %s '%s'", k.title(), key), c.Patch(ctx, obj, client.MergeFrom(before)))
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
