package kustomization

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/build"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/kustomization/spec"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

var errMarker = errors.New("hunter2 marks it")

// TestRedactedErrorsKeepTheirKind has a value of a Secret in each part of an error. The error is of the same kind after
// the redaction, and no part of it has the value.
func TestRedactedErrorsKeepTheirKind(t *testing.T) {
	in := &inputs{secrets: []string{"hunter", "hunter2", "abc"}}
	full := fault.New(meta.PruneFailedReason, "cannot delete hunter2").WithHint("Ask hunter").
		Because(fmt.Errorf("round trip of hunter2: %w", errMarker)).Passing(time.Minute)
	redacted := in.redact(fmt.Errorf("hunter2 failed: %w", full))
	f := fault.As(redacted)
	if f == nil || f.Reason != meta.PruneFailedReason || !f.Temporary || f.RetryAfter != time.Minute ||
		!errors.Is(redacted, errMarker) {
		t.Fatalf("%+v", f)
	}
	texts := []string{redacted.Error(), f.Error(), f.What, f.Hint, f.Err.Error(), reconcile.Failed(redacted).String()}
	for _, text := range texts {
		if strings.Contains(text, "hunter") || !strings.Contains(text, "***") {
			t.Errorf("%q", text)
		}
	}
	waiting := in.redact(reconcile.WaitingFor(errors.New("waiting for hunter2")))
	got, want := reconcile.Failed(waiting), reconcile.Failed(reconcile.WaitingFor(errors.New("waiting for ***")))
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, err := range []error{nil, errors.New("abc is too short")} {
		if in.redact(err) != err { //nolint:errorlint // the very same error
			t.Errorf("%v was changed", err)
		}
	}
}

// manyKustomizations lists many Kustomizations of one source.
type manyKustomizations struct {
	client.Reader
	n int
}

func (m manyKustomizations) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	for n := range m.n {
		k := kustomizev1.Kustomization{}
		k.UID, k.Name = "", fmt.Sprint("k", n)
		k.UID = "uid"
		list.(*kustomizev1.KustomizationList).Items = append(list.(*kustomizev1.KustomizationList).Items, k)
	}
	return nil
}

func TestAllSuccessorsAreAsked(t *testing.T) {
	for _, n := range []int{1, 99, 100, 101, 1000} {
		c := &Controller{Client: manyKustomizations{n: n}}
		successors, err := c.successors(t.Context(), &kustomizev1.Kustomization{},
			&meta.Artifact{Revision: "main@sha1:1"})
		if err != nil || len(successors) != n {
			t.Errorf("%d of %d: %v", len(successors), n, err)
		}
	}
}

func TestEmptyBuildIsAllowedForOneRevision(t *testing.T) {
	obj := &kustomizev1.Kustomization{}
	obj.Namespace, obj.Name, obj.Spec.Prune = "apps", "web", true
	obj.Status.Inventory = &meta.ResourceInventory{Entries: []meta.ResourceRef{{ID: "apps_web__ConfigMap",
		Version: "v1"}}}
	err := spec.CheckNotEmpty(obj, &build.Result{}, "main@sha1:1")
	want := "kubectl -n apps annotate kustomization web --overwrite kustomize.toolkit.fluxcd.io/allow-empty=main@sha1:1"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("%v does not say how to allow it", err)
	}
	obj.Annotations = map[string]string{kustomizev1.AllowEmptyAnnotation: "main@sha1:1"}
	if err := spec.CheckNotEmpty(obj, &build.Result{}, "main@sha1:1"); err != nil {
		t.Error(err)
	}
	for _, other := range []string{"main@sha1:2", ""} {
		if spec.CheckNotEmpty(obj, &build.Result{}, other) == nil {
			t.Errorf("revision %q may be empty, too", other)
		}
	}
}

func TestOwnNamespaceIsNeverPruned(t *testing.T) {
	obj := &kustomizev1.Kustomization{}
	obj.Namespace = "apps"
	inventory := inventoryOf("_apps__Namespace", "_other__Namespace", "apps_apps__ConfigMap",
		"_apps_rbac.authorization.k8s.io_ClusterRole")
	rest, kept := withoutOwnNamespace(obj, inventory)
	if len(rest) != 3 || !strings.Contains(kept, "Namespace 'apps' is kept") {
		t.Errorf("%v, %q", rest, kept)
	}
	if again, kept := withoutOwnNamespace(obj, rest); len(again) != 3 || kept != "" {
		t.Errorf("%v, %q", again, kept)
	}
	obj.Spec.KubeConfig = &meta.KubeConfigReference{}
	if all, kept := withoutOwnNamespace(obj, inventory); len(all) != 4 || kept != "" {
		t.Errorf("in another cluster: %v, %q", all, kept)
	}
}

func TestShortTimeoutsCountAsHalfAMinute(t *testing.T) {
	before := kustomizev1.MinTimeout
	kustomizev1.MinTimeout = 30 * time.Second
	defer func() { kustomizev1.MinTimeout = before }()
	for timeout, want := range map[time.Duration]time.Duration{time.Second: 30 * time.Second,
		30 * time.Second: 30 * time.Second, time.Minute: time.Minute, 0: 5 * time.Minute} {
		obj := &kustomizev1.Kustomization{}
		obj.Spec.Interval.Duration = 5 * time.Minute
		if timeout > 0 {
			obj.Spec.Timeout = &meta.Duration{Duration: timeout}
		}
		if got := obj.Schedule().Timeout; got != want {
			t.Errorf("%s counts as %s, want %s", timeout, got, want)
		}
	}
}

func inventoryOf(ids ...string) (inventory apply.Inventory) {
	for _, id := range ids {
		inventory = append(inventory, apply.Entry{ID: id, Version: "v1"})
	}
	return inventory
}
