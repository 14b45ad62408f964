package kustomization_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/v1/static"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// annotated waits for an event about an object with an annotation.
func (s *harness) annotated(kind, name, key, value string) {
	s.Helper()
	testenv.Eventually(s, "an event about "+name, func() error {
		var list eventsv1.EventList
		if err := s.Client.List(s.Context(), &list, client.InNamespace(s.Namespace)); err != nil {
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
		return fmt.Errorf("no event has %s=%s: %s", key, value, seen)
	})
}

func TestOriginRevision(t *testing.T) {
	t.Parallel()
	s, r := newHarness(t), ociregistry.New(t)
	annotations := map[string]string{"org.opencontainers.image.revision": "main@sha1:abc"}
	first := r.Push("app", "latest", annotations,
		static.NewLayer(system.Archive(t, map[string]string{"a.yaml": system.ConfigMap("oci", "1")}),
			system.ContentMediaType))
	s.OCIRepository(r, "app")
	s.OCIRepositoryReady("app", first)
	s.Kustomization("app", "app", "", func(k *kustomizev1.Kustomization) {
		k.Spec.SourceRef.Kind = sourcev1.OCIRepositoryKind
	})
	k := s.Ready("app", first.DigestStr())
	if k.Status.LastAppliedOriginRevision != "main@sha1:abc" {
		t.Errorf("origin revision: %q", k.Status.LastAppliedOriginRevision)
	}
	want := map[string]string{"revision": k.Status.LastAppliedRevision, "originRevision": "main@sha1:abc"}
	if diff := cmp.Diff(want, k.Status.History[0].Metadata); diff != "" {
		t.Error(diff)
	}
	s.annotated("Kustomization", "app", "kustomize.toolkit.fluxcd.io/originRevision", "main@sha1:abc")
	s.annotated("Kustomization", "app", "kustomize.toolkit.fluxcd.io/revision", k.Status.LastAppliedRevision)
	s.annotated("OCIRepository", "app", "source.toolkit.fluxcd.io/originRevision", "main@sha1:abc")

	t.Log("an artifact without origin")
	second := r.Push("app", "latest", nil, static.NewLayer(system.Archive(t,
		map[string]string{"a.yaml": system.ConfigMap("oci", "2")}),
		system.ContentMediaType))
	s.RequestReconcile(&sourcev1.OCIRepository{}, "app")
	if k := s.Ready("app", second.DigestStr()); k.Status.LastAppliedOriginRevision != "" {
		t.Errorf("origin revision: %q", k.Status.LastAppliedOriginRevision)
	}
}

func TestHistory(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	commit := s.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "0")})
	setStatus(s.harness, &sourcev1.GitRepository{}, fmt.Sprintf(`{"artifact": {"metadata": {%q: "Begin", %q: "Ann"}}}`,
		meta.CommitSubjectKey, meta.CommitAuthorKey))
	s.apply("app", "app", "")
	start := time.Now().Add(-time.Minute)
	first := s.Ready("app", commit).Status.History
	if len(first) != 1 {
		t.Fatalf("%+v", first)
	}
	h := first[0]
	if !strings.HasPrefix(h.Digest, "sha256:") || h.LastReconciledStatus != "ReconciliationSucceeded" ||
		h.TotalReconciliations != 1 ||
		h.FirstReconciled.Time.Before(start) || h.LastReconciled.Before(h.FirstReconciled.Time) ||
		h.LastReconciledDuration.Duration <= 0 ||
		h.Metadata["revision"] != "main@sha1:"+commit || h.Metadata[meta.CommitSubjectKey] != "Begin" ||
		h.Metadata[meta.CommitAuthorKey] != "Ann" {
		t.Errorf("%+v", h)
	}
	if s := h.Times; s == nil || s.Applied == nil || s.Started.Before(start) || s.Built.Before(s.Started.Time) ||
		s.Applied.Before(s.Built.Time) || h.LastReconciled.Before(s.Applied.Time) {
		t.Errorf("the times of the steps are %+v", s)
	}

	t.Log("a build with an equal result updates its entry, also if another was applied between them")
	s.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1")})
	s.Pass("app")
	s.ConfigMapHas("a", "1")
	commit = s.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "0")})
	s.Pass("app")
	again := s.Ready("app", commit).Status.History
	if len(again) != 2 || again[0].Digest != h.Digest || again[0].TotalReconciliations != 2 ||
		!again[0].FirstReconciled.Equal(&h.FirstReconciled) ||
		again[0].Metadata["revision"] != "main@sha1:"+commit {
		t.Errorf("%+v", again)
	}

	t.Log("failures are recorded; the last five entries are kept, newest first")
	bad := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: Not_A_Name}\n"
	s.Commit("app", map[string]string{"bad.yaml": bad})
	s.Pass("app")
	s.NotReady(&kustomizev1.Kustomization{}, "app", "ReconciliationFailed", "Not_A_Name")
	k := &kustomizev1.Kustomization{}
	if err := s.Get(k, "app"); err != nil || len(k.Status.History) != 3 ||
		k.Status.History[0].LastReconciledStatus != "ReconciliationFailed" {
		t.Errorf("%v: %+v", err, k.Status.History)
	}
	for n := range 6 {
		commit = s.Commit("app", map[string]string{"bad.yaml": "",
			"a.yaml": system.ConfigMap("a", fmt.Sprint("new-", n))})
		s.Pass("app")
		k = s.Ready("app", commit)
	}
	if len(k.Status.History) != 5 || k.Status.History[0].Metadata["revision"] != "main@sha1:"+commit {
		t.Errorf("%+v", k.Status.History)
	}
}

func TestStatusOfAKustomization(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	first := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1"),
		"role.yaml": "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: 'system:reader'}\n" +
			"rules: []\n"})
	s.GitRepository("app")
	s.Kustomization("app", "app", "", func(k *kustomizev1.Kustomization) { k.Spec.Wait = true })
	k := s.Ready("app", first)
	revision := "main@sha1:" + first
	want := &meta.ResourceInventory{Entries: []meta.ResourceRef{
		{ID: s.Namespace + "_a__ConfigMap", Version: "v1"},
		{ID: s.Namespace + "_system__reader_rbac.authorization.k8s.io_Role", Version: "v1"},
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

	t.Log("a failed revision is attempted, but not applied")
	second := s.Git.Commit("app", map[string]string{
		"bad.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: Not_A_Name}\n"})
	s.RequestFetch("app")
	s.NotReady(&kustomizev1.Kustomization{}, "app", "ReconciliationFailed", "Not_A_Name")
	if err := s.Get(k, "app"); err != nil || k.Status.LastAppliedRevision != revision ||
		k.Status.LastAttemptedRevision != "main@sha1:"+second {
		t.Errorf("%v: applied %s, attempted %s", err, k.Status.LastAppliedRevision, k.Status.LastAttemptedRevision)
	}
	s.conditions("app", map[string]string{
		"Ready": "False ReconciliationFailed ConfigMap/", "Reconciling": "True ProgressingWithRetry ConfigMap/",
		"Healthy": "True Succeeded",
	})

	t.Log("an error that needs a change of the spec stalls")
	s.Patch(&kustomizev1.Kustomization{}, "app", `{"spec":{"ignore":[{"paths":["data"]}],"path":"./"}}`)
	s.Git.Commit("app", map[string]string{"bad.yaml": ""})
	s.RequestFetch("app")
	s.NotReady(&kustomizev1.Kustomization{}, "app", "ReconciliationFailed", "spec.ignore")
	s.conditions("app", map[string]string{"Ready": "False ReconciliationFailed", "Stalled": "True ReconciliationFailed",
		"Healthy": "True Succeeded"})

	t.Log("the status has the handled generation and request")
	s.Patch(&kustomizev1.Kustomization{}, "app", `{"spec":{"ignore":null}}`)
	s.Reconcile(k, "app")
	if k.Generation != 3 || k.Status.ObservedGeneration != k.Generation || k.Status.LastHandledReconcileAt == "" {
		t.Errorf("generation %d: %+v", k.Generation, k.Status)
	}
}

// conditions waits until a Kustomization has exactly these conditions. Values are prefixes of "status reason message".
func (s *harness) conditions(name string, want map[string]string) {
	s.Helper()
	testenv.Eventually(s, "conditions of "+name, func() error {
		k := &kustomizev1.Kustomization{}
		if err := s.Get(k, name); err != nil {
			return err
		}
		for kind, message := range want {
			c := apimeta.FindStatusCondition(k.Status.Conditions, kind)
			if c == nil || !strings.HasPrefix(fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message), message) {
				return fmt.Errorf("%s is not %q: %+v", kind, message, c)
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

func TestEventSummarizesApply(t *testing.T) {
	t.Parallel()
	s := newSteps(t)
	files := map[string]string{}
	for i := range 30 {
		files[fmt.Sprintf("c%02d.yaml", i)] = system.ConfigMap(fmt.Sprintf("c%02d", i), "1")
	}
	commit := s.Commit("app", files)
	s.apply("app", "app", "")
	s.Ready("app", commit)
	s.HasEvent("app", "ReconciliationSucceeded", "Applied revision: main@sha1:"+commit+"\n30 created\n",
		"ConfigMap/"+s.Namespace+"/c19 created", "and 10 more")
	onlyOnce := func() {
		t.Helper()
		if n := s.countEvents("app", "Applied revision: main@sha1:"+commit); n != 1 {
			t.Errorf("%d events of the revision", n)
		}
	}
	onlyOnce()
	commit = s.Commit("app", map[string]string{"c00.yaml": "", "c01.yaml": system.ConfigMap("c01", "2"),
		"new.yaml": system.ConfigMap("new", "1")})
	s.Pass("app")
	s.Ready("app", commit)
	s.HasEvent("app", "ReconciliationSucceeded", "Applied revision: main@sha1:"+commit+
		"\n1 created, 1 configured, 1 deleted\n", "ConfigMap/"+s.Namespace+"/new created",
		"ConfigMap/"+s.Namespace+"/c00 deleted", `data.k: "1" → "2"`)

	onlyOnce()

	t.Log("an apply without changes causes an event only for a changed condition")
	commit = s.Commit("app", map[string]string{"README.md": "-"})
	s.Pass("app")
	s.Ready("app", commit)
	s.HasEvent("app", "ReconciliationSucceeded", "Applied revision: main@sha1:"+commit)
	onlyOnce()
	if n := s.countEvents("app", "Reconciliation finished in "); n != 3 {
		t.Errorf("%d events that a reconciliation finished, want one for each commit", n)
	}
}

// TestRestartReadsNothing has a process that finds by metadata that all objects are as another one applied them. A
// commit that changes none of them shows that it has looked at them.
func TestRestartReadsNothing(t *testing.T) {
	t.Parallel()
	s := newHarness(t)
	files := map[string]string{"account.yaml": "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: one}\n"}
	for _, name := range []string{"a", "b", "c"} {
		files[name+".yaml"] = system.ConfigMap(name, "0")
	}
	commit := s.Git.Commit("app", files)
	s.GitRepository("app")
	s.Kustomization("app", "app", "")
	s.Ready("app", commit)
	s.Stop()
	s.Requests.Reset()
	s.Start()
	commit = s.Git.Commit("app", map[string]string{"README.md": "-"})
	s.RequestFetch("app")
	s.Ready("app", commit)
	for _, kind := range []string{"/configmaps/", "/configmaps?labelSelector=kustomize", "/serviceaccounts/one"} {
		for _, line := range s.Requests.Matching("/namespaces/" + s.Namespace + kind) {
			t.Errorf("after a restart: %s", line)
		}
	}
}

// TestRestartIsNotRecorded has a pass that finds nothing to do after a restart, so that a restart does not write the
// status of all Kustomizations. The drift that the process corrects after it is recorded.
func TestRestartIsNotRecorded(t *testing.T) {
	t.Parallel()
	s := newHarness(t)
	commit := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "0")})
	s.GitRepository("app")
	s.Kustomization("app", "app", "")
	s.Ready("app", commit)
	s.Stop()
	s.Start()
	if err := s.Client.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace,
		Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	s.HasEvent("app", "DriftCorrected")
	testenv.Eventually(t, "the correction is recorded", func() error {
		k := &kustomizev1.Kustomization{}
		if err := s.Get(k, "app"); err != nil || k.Status.History[0].TotalReconciliations != 2 {
			return fmt.Errorf("history %+v: %w", k.Status.History, err)
		}
		return nil
	})
}
