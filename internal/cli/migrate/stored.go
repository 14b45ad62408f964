package migrate

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Stored is the result of [StoredVersions] for one CustomResourceDefinition.
type Stored struct {
	Name    string   `json:"name"`
	Before  []string `json:"before"`  // status.storedVersions
	Version string   `json:"version"` // that all objects are stored in afterwards
	Objects int      `json:"objects"` // that were written; 0 if nothing needed it
}

// IsCurrent reports whether all objects were stored in the storage version already.
func (s Stored) IsCurrent() bool { return slices.Equal(s.Before, []string{s.Version}) }

// StoredVersions stores all objects of Flux's kinds in the storage versions of their definitions, and removes the other
// versions from status.storedVersions. So a definition without these versions can be installed. With dryRun, it only
// returns what it would do.
func StoredVersions(ctx context.Context, c client.Client, dryRun bool) ([]Stored, error) {
	e := &Engine{Client: c}
	definitions, err := e.definitions(ctx)
	if err != nil {
		return nil, err
	}
	var results []Stored
	for _, d := range definitions {
		s := Stored{Name: d.Name, Before: d.StoredVersions, Version: d.StorageVersion}
		if !s.IsCurrent() && dryRun {
			s.Objects, err = count(ctx, c, d)
		} else if !s.IsCurrent() {
			s.Objects, err = storeAgain(ctx, c, d)
		}
		if err != nil {
			return results, err
		}
		results = append(results, s)
	}
	return results, nil
}

func count(ctx context.Context, c client.Reader, d *definition) (int, error) {
	n := 0
	err := list(ctx, c, d.storageGVK(), func(*unstructured.Unstructured) error { n++; return nil })
	return n, err
}

// storeAgain writes each object of a definition without a change, so that the API server stores it in the storage
// version, then records that no other version is stored.
func storeAgain(ctx context.Context, c client.Client, d *definition) (int, error) {
	written := 0
	err := list(ctx, c, d.storageGVK(), func(u *unstructured.Unstructured) error {
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			err := c.Update(ctx, u)
			if apierrors.IsConflict(err) {
				if err := c.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
					return err
				}
			}
			return err
		})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("cannot store %s again: %w", refOf(u), err)
		}
		written++
		return nil
	})
	if err != nil {
		return written, err
	}
	return written, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(definitionGVK)
		if err := c.Get(ctx, client.ObjectKey{Name: d.Name}, live); err != nil {
			return fmt.Errorf("cannot get CustomResourceDefinition '%s': %w", d.Name, err)
		}
		if parseDefinition(live).StorageVersion != d.StorageVersion {
			return fmt.Errorf("CustomResourceDefinition '%s' was changed while its objects were stored again. Run the "+
				"command again", d.Name)
		}
		if err := unstructured.SetNestedStringSlice(live.Object, []string{d.StorageVersion}, "status",
			"storedVersions"); err != nil {
			return err
		}
		if err := c.Status().Update(ctx, live); err != nil {
			return fmt.Errorf("cannot record the stored versions of CustomResourceDefinition '%s': %w", d.Name, err)
		}
		return nil
	})
}
