package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// maxRestores is how often a definition is restored before its objects must be readable.
const maxRestores = 3

// errUnreadable says that objects are stored in a version that their definition lacks.
var errUnreadable = errors.New("some objects are stored in a version that it lacks")

// restoreDefinition makes a CustomResourceDefinition what it was. Objects that are stored in versions that the former
// one lacks are stored in its version first. Then it checks that they can be read, since the API server could not read
// an object that another client wrote meanwhile in a removed version: such a version is put back, and all is repeated.
func (e *Engine) restoreDefinition(ctx context.Context, saved *unstructured.Unstructured) error {
	live, err := e.getIfExists(ctx, refOf(saved))
	if err != nil {
		return err
	}
	if live == nil {
		return e.Client.Create(ctx, saved.DeepCopy())
	}
	before, ours := parseDefinition(saved), live.DeepCopy()
	removed := removedVersions(parseDefinition(live), before)
	for restores := 1; ; restores++ {
		if len(removed) > 0 {
			if err := e.storeWithout(ctx, ours, before.StorageVersion, removed); err != nil {
				return err
			}
		}
		if err := e.setDefinition(ctx, saved); err != nil {
			return err
		}
		if len(removed) == 0 {
			return nil
		}
		if err = e.checkReadable(ctx, before, removed); err == nil {
			return nil
		}
		if !errors.Is(err, errUnreadable) || restores == maxRestores {
			return fmt.Errorf("cannot restore %s: %w", refOf(saved), err)
		}
	}
}

// removedVersions returns the versions that objects may be stored in, and which the former definition lacks.
func removedVersions(now, before *definition) (removed []string) {
	for _, v := range now.StoredVersions {
		if !slices.Contains(before.Versions, v) {
			removed = append(removed, v)
		}
	}
	return removed
}

// setDefinition gives a CustomResourceDefinition the spec, labels and annotations of want.
func (e *Engine) setDefinition(ctx context.Context, want *unstructured.Unstructured) error {
	live, err := e.get(ctx, refOf(want))
	if err != nil {
		return fmt.Errorf("cannot get %s: %w", refOf(want), err)
	}
	live.Object["spec"] = want.DeepCopy().Object["spec"]
	live.SetLabels(want.GetLabels())
	live.SetAnnotations(want.GetAnnotations())
	if err := e.Client.Update(ctx, live); err != nil {
		return fmt.Errorf("cannot restore %s: %w", refOf(want), err)
	}
	return nil
}

// storeWithout stores all objects of our definition in the storage version of the former one. The removed versions are
// not served from then on: an API server applies a change of a definition a moment after it accepted it, and as long
// as it still serves these versions, it also still stores objects in the old one.
func (e *Engine) storeWithout(ctx context.Context, ours *unstructured.Unstructured, storage string,
	removed []string,
) error {
	want := ours.DeepCopy()
	for _, v := range versionsOf(want) {
		v["storage"] = v["name"] == storage
		if name, _ := v["name"].(string); slices.Contains(removed, name) {
			v["served"] = false
		}
	}
	if err := e.setDefinition(ctx, want); err != nil {
		return err
	}
	d := parseDefinition(want)
	if err := e.waitNotServed(ctx, d, removed); err != nil {
		return err
	}
	_, err := storeAgain(ctx, e.Client, d)
	return err
}

// waitNotServed waits until the API server does not serve versions of a definition in two looks, one after the other:
// it learns of them just before it changes how it stores objects.
func (e *Engine) waitNotServed(ctx context.Context, d *definition, versions []string) error {
	looks := 0
	return e.wait(ctx, "the API server to apply "+definitionRef(d.Name).String(),
		func(ctx context.Context) (string, error) {
			for _, v := range versions {
				gvk := schema.GroupVersionKind{Group: d.group, Version: v, Kind: d.kind}
				err := list(ctx, e.Client, gvk, func(*unstructured.Unstructured) error { return nil })
				if err == nil {
					looks = 0
					return "it still serves version " + v, nil
				}
				if !apierrors.IsNotFound(err) && !apimeta.IsNoMatchError(err) && !isUnreadable(err) {
					return "", err
				}
			}
			if looks++; looks < 2 {
				return "its objects are about to be stored in another version", nil
			}
			return "", nil
		})
}

// checkReadable returns an error that wraps errUnreadable if an object is stored in a removed version.
func (e *Engine) checkReadable(ctx context.Context, d *definition, removed []string) error {
	if err := e.waitNotServed(ctx, d, removed); err != nil {
		return err
	}
	err := list(ctx, e.Client, d.storageGVK(), func(*unstructured.Unstructured) error { return nil })
	if isUnreadable(err) {
		return fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return err
}

// isUnreadable reports whether the API server could not convert a stored object. It has no reason of its own for that.
func isUnreadable(err error) bool {
	return err != nil && strings.Contains(err.Error(), "request to convert CR from an invalid group/version")
}
