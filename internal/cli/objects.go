package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/offline/manifest"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// This file holds what commands about objects share.

// key returns the key of an object in the namespace of the command.
func (e *env) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: e.Namespace(), Name: name}
}

// bounded returns a RunE whose context ends after --timeout.
func (e *env) bounded(run func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, cancel := e.WithTimeout(cmd.Context())
		defer cancel()
		return run(ctx, args)
	}
}

// addPerKind adds a command for each kind for which newCommand returns one, grouped by the parents of the kinds.
func (e *env) addPerKind(to *cobra.Command, newCommand func(*kind.Kind) *cobra.Command) {
	to.ValidArgsFunction = e.completeObjects(to)
	groups := map[string]*cobra.Command{"": to}
	for _, k := range kind.All() {
		c := newCommand(k)
		if c == nil {
			continue
		}
		if c.ValidArgsFunction == nil {
			c.ValidArgsFunction = e.completeNames(k)
		}
		acceptObjects(c, k)
		if groups[k.Parent] == nil {
			aliases := kind.ParentAliases(k.Parent)
			verb := strings.ToUpper(to.Name()[:1]) + to.Name()[1:]
			group := newGroup(k.Parent, verb+" "+k.Parent+" objects", "  sluice "+to.Name()+" "+k.Path()+" NAME")
			group.Aliases = aliases
			groups[k.Parent] = group
			to.AddCommand(group)
		}
		groups[k.Parent].AddCommand(c)
	}
}

// namesOrAll returns the given names, or those of all objects in the namespace if there are none.
func (e *env) namesOrAll(ctx context.Context, c client.Client, k *kind.Kind, names []string) ([]string, error) {
	if len(names) > 0 {
		return names, nil
	}
	objects, err := cluster.List(ctx, c, k, client.InNamespace(e.Namespace()))
	if err != nil {
		return nil, err
	}
	if len(objects) == 0 {
		e.Step("no %s found in namespace %s", k.Name(), e.Namespace())
	}
	for _, o := range objects {
		names = append(names, o.GetName())
	}
	return names, nil
}

// await waits for an object and shows its state on the live line.
func (e *env) await(ctx context.Context, c client.WithWatch, k *kind.Kind, key types.NamespacedName,
	done func(reconcile.Object) bool) (reconcile.Object, error) {
	e.Live("waiting for %s '%s'", k.Name(), key)
	defer e.Clear()
	return cluster.Wait{
		Kind: k, Key: key, Done: done, Timeout: e.Timeout,
		OnState: func(message string) { e.Live("waiting for %s '%s': %s", k.Name(), key, message) },
	}.Run(ctx, c)
}

// awaitReady waits until an object is settled, and returns an error if it is not Ready.
func (e *env) awaitReady(ctx context.Context, c client.WithWatch, k *kind.Kind, key types.NamespacedName) error {
	obj, err := e.await(ctx, c, k, key, cluster.IsSettled)
	if err != nil {
		return err
	}
	return e.reportReady(k, obj)
}

// reportReady prints that a settled object is Ready, or returns an error if it is not.
func (e *env) reportReady(k *kind.Kind, o reconcile.Object) error {
	if err := cluster.CheckReady(k, o); err != nil {
		return err
	}
	e.Done("%s '%s' is ready: %s", k.Name(), client.ObjectKeyFromObject(o), cluster.Message(o))
	return nil
}

// awaitDeleted waits until a deleted object is gone.
func (e *env) awaitDeleted(ctx context.Context, c client.Client, o client.Object, what string) error {
	e.Live("waiting for the deletion of %s", what)
	err := cluster.WaitDeleted(ctx, c, o)
	if err == nil {
		e.Done("%s deleted", what)
	}
	return err
}

// untilStopped runs a watch until the user stops it or --timeout, if it is set, has passed. Neither is an error.
func (e *env) untilStopped(ctx context.Context, watch func(context.Context) error) error {
	ctx, cancel := e.ForWatch(ctx)
	defer cancel()
	err := watch(ctx)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		e.Step("stopped after --timeout %s", e.Timeout)
		return nil
	case ctx.Err() != nil:
		return nil
	}
	return err
}

// printDeclarations prints objects as YAML, without what the cluster added.
func (e *env) printDeclarations(objects ...client.Object) error {
	for _, o := range objects {
		u, err := manifest.Declaration(o)
		if err == nil {
			err = manifest.Encode(e.Out, u)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// printAs prints a value as JSON or YAML.
func (e *env) printAs(output string, value any) error {
	var b []byte
	var err error
	switch output {
	case "json":
		b, err = json.MarshalIndent(value, "", "  ")
		b = append(b, '\n')
	case "yaml":
		b, err = yaml.Marshal(value)
	default:
		return oneOf("output", output, machineFormats...)
	}
	if err == nil {
		_, err = e.Out.Write(b)
	}
	return err
}

// scope describes a namespace in messages; "" is all namespaces.
func scope(namespace string) string {
	if namespace == "" {
		return "any namespace"
	}
	return fmt.Sprintf("namespace '%s'", namespace)
}
