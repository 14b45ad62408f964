// Package storage stores releases as Helm does, in Secrets, and records what an action stored.
package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	chart "helm.sh/helm/v4/pkg/chart/v2"
	ri "helm.sh/helm/v4/pkg/release"
	release "helm.sh/helm/v4/pkg/release/v1"
	helmstorage "helm.sh/helm/v4/pkg/storage"
	"helm.sh/helm/v4/pkg/storage/driver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/helm/render"
)

// Driver stores releases in the Secrets of a namespace. It implements Helm's [driver.Driver].
type Driver struct {
	driver.Driver
	secrets corev1.SecretInterface

	mu        sync.Mutex
	processed map[*chart.Chart]*chart.Chart // the charts to store instead of those that actions used
	stored    map[int]*release.Release      // by version
	begun     *release.Release              // that the action created
	isHeld    bool                          // further updates are left out
}

// New returns the driver for the Secrets of a namespace.
func New(secrets corev1.SecretInterface) *Driver {
	secrets = bounded{secrets}
	inner := driver.NewSecrets(secrets)
	inner.SetLogger(slog.DiscardHandler)
	return &Driver{Driver: inner, secrets: secrets, processed: map[*chart.Chart]*chart.Chart{},
		stored: map[int]*release.Release{}}
}

// Storage returns Helm's storage with this driver. MaxHistory limits the stored revisions; 0 for no limit.
func (d *Driver) Storage(maxHistory int) *helmstorage.Storage {
	s := helmstorage.Init(d)
	s.SetLogger(slog.DiscardHandler)
	s.MaxHistory = maxHistory
	return s
}

// Replace makes the driver store the original of a chart instead of the one that an action uses.
func (d *Driver) Replace(used, original *chart.Chart) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.processed[used] = original
}

// Create implements [driver.Creator]. A Secret of the same name that holds no release is replaced.
func (d *Driver) Create(key string, r ri.Releaser) error {
	rel, err := d.toStore(r)
	if err != nil {
		return err
	}
	err = d.Driver.Create(key, rel)
	if errors.Is(err, driver.ErrReleaseExists) && d.isCorrupt(key) {
		if err := d.secrets.Delete(context.Background(), key, metav1.DeleteOptions{}); err != nil {
			return fmt.Errorf("cannot delete Secret '%s', which holds no release: %w", key, err)
		}
		err = d.Driver.Create(key, rel)
	}
	if err == nil {
		d.observe(rel)
		d.mu.Lock()
		d.begun = rel
		d.mu.Unlock()
	}
	return err
}

// Hold stores a description in the release that the running action created, and leaves out all further updates: the
// release stays as it is until another action completes it. It reports whether it did; it does not if the release has
// hooks for an event that is still to come.
func (d *Driver) Hold(description string, next release.HookEvent) (bool, error) {
	d.mu.Lock()
	rel := d.begun
	if rel != nil && d.stored[rel.Version] != nil {
		rel = d.stored[rel.Version] // with the results of hooks
	}
	d.mu.Unlock()
	if rel == nil {
		return false, nil
	}
	for _, h := range rel.Hooks {
		if next != "" && slices.Contains(h.Events, next) {
			return false, nil
		}
	}
	rel.Info.Description = description
	if err := d.Storage(0).Update(rel); err != nil {
		return false, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.isHeld = true
	return true, nil
}

func (d *Driver) held() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.isHeld
}

// isCorrupt reports whether a Secret exists that cannot be decoded as a release.
func (d *Driver) isCorrupt(key string) bool {
	_, err := d.Get(key)
	return err != nil && !errors.Is(err, driver.ErrReleaseNotFound) &&
		apierrors.ReasonForError(err) == metav1.StatusReasonUnknown
}

// errIncomplete is the error for a Secret whose release lacks what every release has.
var errIncomplete = errors.New("the Secret holds no complete release")

// Get implements [driver.Queryor].
func (d *Driver) Get(key string) (ri.Releaser, error) {
	rel, err := d.Driver.Get(key)
	if err == nil && !isComplete(rel) {
		return nil, fmt.Errorf("%s: %w", key, errIncomplete)
	}
	return rel, err
}

// Query implements [driver.Queryor]. Secrets that hold no release are left out.
func (d *Driver) Query(labels map[string]string) ([]ri.Releaser, error) {
	found, err := d.Driver.Query(labels)
	if found = complete(found); err == nil && len(found) == 0 {
		return nil, driver.ErrReleaseNotFound
	}
	return found, err
}

// List implements [driver.Queryor]. Secrets that hold no release are left out.
func (d *Driver) List(filter func(ri.Releaser) bool) ([]ri.Releaser, error) {
	return d.Driver.List(func(r ri.Releaser) bool { return isComplete(r) && filter(r) })
}

// Update implements [driver.Updator]. Helm's actions call it in goroutines of their own.
func (d *Driver) Update(key string, r ri.Releaser) (err error) {
	defer guard.Recover("storing a release", &err)
	if d.held() {
		return nil
	}
	rel, err := d.toStore(r)
	if err != nil {
		return err
	}
	if err := d.Driver.Update(key, rel); err != nil {
		return err
	}
	d.observe(rel)
	return nil
}

// toStore returns a copy of a release, with the original chart.
func (d *Driver) toStore(r ri.Releaser) (*release.Release, error) {
	rel, ok := r.(*release.Release)
	if !ok {
		return nil, fmt.Errorf("releases of type %T are not supported", r)
	}
	out := *rel
	if rel.Info != nil {
		info := *rel.Info
		out.Info = &info
	}
	out.Hooks = make([]*release.Hook, len(rel.Hooks))
	for i, h := range rel.Hooks {
		hook := *h
		out.Hooks[i] = &hook
	}
	if rel.Hooks == nil {
		out.Hooks = nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if original := d.processed[rel.Chart]; original != nil {
		processed := render.Processed(original, rel.Chart)
		processed.SetDependencies(original.Dependencies()...)
		out.Chart = processed
	}
	return &out, nil
}

func (d *Driver) observe(rel *release.Release) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stored[rel.Version] = rel
}

// Stored returns the releases that were created or updated since the last call, by ascending version.
func (d *Driver) Stored() []*release.Release {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []*release.Release
	for _, rel := range d.stored {
		out = append(out, rel)
	}
	d.stored = map[int]*release.Release{}
	slices.SortFunc(out, func(a, b *release.Release) int { return a.Version - b.Version })
	return out
}

// History returns the stored releases of a name, newest first. Secrets that hold no release are left out.
func (d *Driver) History(ctx context.Context, name string) ([]*release.Release, error) {
	found, err := d.Query(map[string]string{"name": name, "owner": "helm"})
	if errors.Is(err, driver.ErrReleaseNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var out []*release.Release
	for _, r := range found {
		if rel, ok := r.(*release.Release); ok {
			out = append(out, rel)
		}
	}
	slices.SortFunc(out, func(a, b *release.Release) int { return b.Version - a.Version })
	return out, nil
}
