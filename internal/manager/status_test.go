package manager

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/v1/static"
	eventsv1 "k8s.io/api/events/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// annotated waits for an event about an object of a kind that carries an annotation.
func (s *system) annotated(kind, name, key, value string) {
	s.Helper()
	testenv.Eventually(s, "an event about "+name, func() error {
		var list eventsv1.EventList
		if err := s.client.List(s.Context(), &list, client.InNamespace(s.namespace)); err != nil {
			return err
		}
		var seen []string
		for _, e := range list.Items {
			if e.Regarding.Kind == kind && e.Regarding.Name == name {
				if e.Annotations[key] == value {
					return nil
				}
				seen = append(seen, fmt.Sprint(e.Annotations))
			}
		}
		return fmt.Errorf("none has %s=%s: %s", key, value, seen)
	})
}

func TestTheRevisionOfTheOriginIsTold(t *testing.T) {
	s, r := newSystem(t), testenv.NewRegistry(t)
	annotations := map[string]string{"org.opencontainers.image.revision": "main@sha1:abc"}
	first := r.Push("app", "latest", annotations,
		static.NewLayer(archive(t, map[string]string{"a.yaml": cm("oci", "1")}), ociContent))
	s.ociSource(r, "app")
	s.ociReady("app", first)
	s.sync("app", "app", "", func(k *kustomizev1.Kustomization) { k.Spec.SourceRef.Kind = sourcev1.OCIRepositoryKind })
	k := s.ready("app", first.DigestStr())
	if k.Status.LastAppliedOriginRevision != "main@sha1:abc" {
		t.Errorf("the origin's revision is %q", k.Status.LastAppliedOriginRevision)
	}
	want := map[string]string{"revision": k.Status.LastAppliedRevision, "originRevision": "main@sha1:abc"}
	if diff := cmp.Diff(want, k.Status.History[0].Metadata); diff != "" {
		t.Error(diff)
	}
	s.annotated("Kustomization", "app", "kustomize.toolkit.fluxcd.io/originRevision", "main@sha1:abc")
	s.annotated("Kustomization", "app", "kustomize.toolkit.fluxcd.io/revision", k.Status.LastAppliedRevision)
	s.annotated("OCIRepository", "app", "source.toolkit.fluxcd.io/originRevision", "main@sha1:abc")

	t.Log("one that tells of no origin has none")
	second := r.Push("app", "latest", nil, static.NewLayer(archive(t, map[string]string{"a.yaml": cm("oci", "2")}),
		ociContent))
	s.annotate(&sourcev1.OCIRepository{}, "app")
	if k := s.ready("app", second.DigestStr()); k.Status.LastAppliedOriginRevision != "" {
		t.Errorf("the origin's revision is %q", k.Status.LastAppliedOriginRevision)
	}
}

func TestHistory(t *testing.T) {
	s := newSystem(t)
	commit := s.git.Commit("app", map[string]string{"a.yaml": cm("a", "0")})
	s.source("app")
	s.sync("app", "app", "")
	start := time.Now().Add(-time.Minute)
	first := s.ready("app", commit).Status.History
	if len(first) != 1 {
		t.Fatalf("%+v", first)
	}
	h := first[0]
	if !strings.HasPrefix(h.Digest, "sha256:") || h.LastReconciledStatus != "ReconciliationSucceeded" ||
		h.TotalReconciliations != 1 ||
		h.FirstReconciled.Time.Before(start) || h.LastReconciled.Before(&h.FirstReconciled) ||
		h.LastReconciledDuration.Duration <= 0 ||
		h.Metadata["revision"] != "main@sha1:"+commit {
		t.Errorf("%+v", h)
	}

	t.Log("a build that makes the same is the same entry, also after another")
	s.git.Commit("app", map[string]string{"a.yaml": cm("a", "1")})
	s.pull("app")
	s.configMap("a", "1")
	commit = s.git.Commit("app", map[string]string{"a.yaml": cm("a", "0")})
	s.pull("app")
	again := s.ready("app", commit).Status.History
	if len(again) != 2 || again[0].Digest != h.Digest || again[0].TotalReconciliations != 2 ||
		!again[0].FirstReconciled.Equal(&h.FirstReconciled) ||
		again[0].Metadata["revision"] != "main@sha1:"+commit {
		t.Errorf("%+v", again)
	}

	t.Log("a failure is told, and the last five are kept, the newest first")
	bad := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: Not_A_Name}\n"
	s.git.Commit("app", map[string]string{"bad.yaml": bad})
	s.pull("app")
	s.fails(&kustomizev1.Kustomization{}, "app", "ReconciliationFailed", "Not_A_Name")
	k := &kustomizev1.Kustomization{}
	if err := s.get(k, "app"); err != nil || len(k.Status.History) != 3 ||
		k.Status.History[0].LastReconciledStatus != "ReconciliationFailed" {
		t.Errorf("%v: %+v", err, k.Status.History)
	}
	for n := range 6 {
		commit = s.git.Commit("app", map[string]string{"bad.yaml": "", "a.yaml": cm("a", fmt.Sprint("new-", n))})
		s.pull("app")
		k = s.ready("app", commit)
	}
	if len(k.Status.History) != 5 || k.Status.History[0].Metadata["revision"] != "main@sha1:"+commit {
		t.Errorf("%+v", k.Status.History)
	}
}

func TestStatusOfAKustomization(t *testing.T) {
	s := newSystem(t)
	first := s.git.Commit("app", map[string]string{"a.yaml": cm("a", "1"),
		"role.yaml": "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: 'system:reader'}\n" +
			"rules: []\n"})
	s.source("app")
	s.sync("app", "app", "", func(k *kustomizev1.Kustomization) { k.Spec.Wait = true })
	k := s.ready("app", first)
	revision := "main@sha1:" + first
	want := &meta.ResourceInventory{Entries: []meta.ResourceRef{
		{ID: s.namespace + "_a__ConfigMap", Version: "v1"},
		{ID: s.namespace + "_system__reader_rbac.authorization.k8s.io_Role", Version: "v1"},
	}}
	if diff := cmp.Diff(want, k.Status.Inventory); diff != "" {
		t.Error(diff)
	}
	s.conditions("app", map[string]string{
		"Ready":   "True ReconciliationSucceeded Applied revision: " + revision,
		"Healthy": "True Succeeded Health check passed",
	})
	if k.Status.LastAppliedRevision != revision || k.Status.LastAttemptedRevision != revision ||
		k.Status.ObservedGeneration != k.Generation {
		t.Errorf("%+v", k.Status)
	}

	t.Log("one that fails was attempted, not applied")
	second := s.git.Commit("app", map[string]string{
		"bad.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: Not_A_Name}\n"})
	s.pull("app")
	s.fails(&kustomizev1.Kustomization{}, "app", "ReconciliationFailed", "Not_A_Name")
	if err := s.get(k, "app"); err != nil || k.Status.LastAppliedRevision != revision ||
		k.Status.LastAttemptedRevision != "main@sha1:"+second {
		t.Errorf("%v: applied %s, attempted %s", err, k.Status.LastAppliedRevision, k.Status.LastAttemptedRevision)
	}
	s.conditions("app", map[string]string{
		"Ready": "False ReconciliationFailed ConfigMap/", "Reconciling": "True ProgressingWithRetry ConfigMap/",
		"Healthy": "True Succeeded",
	})

	t.Log("what only a change of the spec helps is stalled")
	s.patch(&kustomizev1.Kustomization{}, "app", `{"spec":{"ignore":[{"paths":["data"]}],"path":"./"}}`)
	s.git.Commit("app", map[string]string{"bad.yaml": ""})
	s.pull("app")
	s.fails(&kustomizev1.Kustomization{}, "app", "ReconciliationFailed", "spec.ignore")
	s.conditions("app", map[string]string{"Ready": "False ReconciliationFailed", "Stalled": "True ReconciliationFailed",
		"Healthy": "True Succeeded"})

	t.Log("the generation and the request that were handled are told")
	s.patch(&kustomizev1.Kustomization{}, "app", `{"spec":{"ignore":null}}`)
	s.handled(k, "app")
	if k.Generation != 3 || k.Status.ObservedGeneration != k.Generation || k.Status.LastHandledReconcileAt == "" {
		t.Errorf("generation %d: %+v", k.Generation, k.Status)
	}
}

// conditions waits until a Kustomization has these conditions and no others; each begins with status, reason
// and message.
func (s *system) conditions(name string, want map[string]string) {
	s.Helper()
	testenv.Eventually(s, "conditions of "+name, func() error {
		k := &kustomizev1.Kustomization{}
		if err := s.get(k, name); err != nil {
			return err
		}
		for kind, says := range want {
			c := apimeta.FindStatusCondition(k.Status.Conditions, kind)
			if c == nil || !strings.HasPrefix(fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message), says) {
				return fmt.Errorf("%s is not %q: %+v", kind, says, c)
			}
			if c.ObservedGeneration != k.Generation && c.Type == "Ready" {
				return fmt.Errorf("%s is of generation %d, not %d", kind, c.ObservedGeneration, k.Generation)
			}
		}
		if len(k.Status.Conditions) != len(want) {
			return fmt.Errorf("%+v", k.Status.Conditions)
		}
		return nil
	})
}

func TestAnEventSumsUpWhatWasApplied(t *testing.T) {
	s := newSystem(t)
	files := map[string]string{}
	for i := range 30 {
		files[fmt.Sprintf("c%02d.yaml", i)] = cm(fmt.Sprintf("c%02d", i), "1")
	}
	commit := s.git.Commit("app", files)
	s.source("app")
	s.sync("app", "app", "")
	s.ready("app", commit)
	s.told("app", "Progressing", "30 created\n", "ConfigMap/"+s.namespace+"/c19 created", "and 10 more")
	commit = s.git.Commit("app", map[string]string{"c00.yaml": "", "c01.yaml": cm("c01", "2"),
		"new.yaml": cm("new", "1")})
	s.pull("app")
	s.ready("app", commit)
	s.told("app", "Progressing", "1 created, 1 configured, 1 deleted\n", "ConfigMap/"+s.namespace+"/new created",
		"ConfigMap/"+s.namespace+"/c00 deleted", `data.k: "1" → "2"`)

	t.Log("what changes nothing is told by the transition alone")
	count := s.told("app", "Progressing")
	commit = s.git.Commit("app", map[string]string{"README.md": "-"})
	s.pull("app")
	s.ready("app", commit)
	s.told("app", "ReconciliationSucceeded", "Applied revision: main@sha1:"+commit)
	if again := s.told("app", "Progressing"); again != count {
		t.Errorf("%d events, then %d", count, again)
	}
}
