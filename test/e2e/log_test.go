package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/definitions"
)

// TestLogTellsTheStoryOfAChange runs the binary with its default level through a change, a failure and a gate, and
// reads the whole log: what operators search for is there once, and nothing else.
func TestLogTellsTheStoryOfAChange(t *testing.T) {
	definitions.Install(t, testenv.Cluster(t))
	c, err := client.New(testenv.Cluster(t), client.Options{Scheme: kubeclient.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	s := &logged{T: t, Client: c, git: testenv.NewGit(t), namespace: testenv.Namespace(t)}
	s.start()
	first := s.commit("a", "1", "b", "1", "c", "1")
	for _, o := range declarations(s.namespace, s.git.URL) {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	applied(t, c, s.namespace, first)
	second := s.commit("a", "2", "b", "")
	pull(t, c, s.namespace)
	applied(t, c, s.namespace, second)
	broken := s.fails()
	third := s.commit("broken", "", "d", "1")
	pull(t, c, s.namespace)
	applied(t, c, s.namespace, third)
	s.gate()
	held := s.commit("a", "3", "d", "2")
	pull(t, c, s.namespace)
	s.until("the gate holds the change", func(k *kustomizev1.Kustomization) bool {
		return k.Status.Pending != nil && strings.HasSuffix(k.Status.Pending.Revision, held) &&
			k.Status.Pending.Configured == 2
	})
	log := s.entries()
	log.once(s, "stored artifact", "Succeeded", first, second, broken, third, held)
	log.once(s, "Applied revision", "ReconciliationSucceeded", first, second, third)
	log.counts(s, first, 3, 0, 0, 0)
	log.counts(s, second, 0, 1, 1, 1)
	log.counts(s, third, 1, 0, 2, 0)
	log.failedOnce(s)
	if n := log.find(func(e entry) bool { return strings.Contains(e.text("msg"), "(2 changes)") }); len(n) != 1 {
		t.Errorf("the log has %d lines about 2 changes that wait at the gate", len(n))
	}
}

// entry is a line of the log.
type entry map[string]any

func (e entry) text(key string) string {
	text, _ := e[key].(string)
	return text
}

// logLines are the lines about objects.
type logLines []entry

// entries ends the process and returns the lines about objects. It checks that each line is JSON, and that all others
// are of the client library: details of the start are not at INFO.
func (s *logged) entries() (entries logLines) {
	s.Helper()
	log := s.stop()
	for line := range strings.Lines(log) {
		e := entry{}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			s.Errorf("not JSON: %v in %q", err, line)
			continue
		}
		if strings.HasPrefix(e.text("logger"), "client") {
			continue
		}
		for _, key := range []string{"ts", "level", "msg", "controller", "namespace", "name", "reconcileID"} {
			if e.text(key) == "" {
				s.Errorf("no %s: %s", key, line)
			}
		}
		if strings.Contains(line, "0x") || e.text("level") != "info" && e.text("level") != "error" {
			s.Errorf("not for operators: %s", line)
		}
		entries = append(entries, e)
	}
	if s.Failed() {
		s.Log(log)
	}
	return entries
}

func (l logLines) find(matches func(e entry) bool) logLines {
	return slices.DeleteFunc(slices.Clone(l), func(e entry) bool { return !matches(e) })
}

// once checks that each revision has one line with the text and reason, which says how long it took.
func (l logLines) once(s *logged, text, reason string, commits ...string) {
	s.Helper()
	for _, commit := range commits {
		found := l.find(func(e entry) bool {
			return strings.HasPrefix(e.text("msg"), text) && strings.HasSuffix(e.text("revision"), commit) &&
				e.text("reason") == reason
		})
		if len(found) != 1 || found[0].text("duration") == "" {
			s.Errorf("%s of %s is in %d lines: %v", text, commit, len(found), found)
		}
	}
}

// counts checks how many objects the line about an applied revision counts.
func (l logLines) counts(s *logged, commit string, created, configured, unchanged, deleted float64) {
	s.Helper()
	found := l.find(func(e entry) bool {
		return strings.HasPrefix(e.text("msg"), "Applied revision") && strings.HasSuffix(e.text("revision"), commit) &&
			e["created"] != nil
	})
	if len(found) == 0 {
		s.Fatalf("no line counts the objects of %s", commit)
	}
	e, want := found[0], []any{created, configured, unchanged, deleted}
	if got := []any{e["created"], e["configured"], e["unchanged"], e["deleted"]}; !slices.Equal(got, want) {
		s.Errorf("%s: created, configured, unchanged and deleted are %v, want %v", commit, got, want)
	}
}

// failedOnce checks that a failure and the recovery from it are one line each.
func (l logLines) failedOnce(s *logged) {
	s.Helper()
	failed := l.find(func(e entry) bool { return strings.Contains(e.text("error"), "broken.yaml") })
	recovered := l.find(func(e entry) bool {
		return e["recovered"] == true && e.text("controller") == "kustomization"
	})
	if len(failed) != 1 || failed[0].text("level") != "error" || len(recovered) != 1 {
		s.Errorf("failed: %v, recovered: %v", failed, recovered)
	}
}

// logged is a process with its log, and a namespace with a source and a Kustomization.
type logged struct {
	*testing.T
	client.Client
	git       *testenv.Git
	namespace string
	stop      func() string // ends the process and returns its log
}

func (s *logged) start() {
	s.Helper()
	binary, err := testenv.Binary("sluice")
	if err != nil {
		s.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.Context()))
	cmd := exec.CommandContext(ctx, binary, "controller", "--kubeconfig", testenv.Kubeconfig(s), "-n", s.namespace,
		"--watch-all-namespaces=false", "--storage-path", s.TempDir(), "--storage-addr", "127.0.0.1:0",
		"--metrics-addr", "0", "--health-addr", "0", "--receiverAddr", "0", "--events-addr", "0", "--images-addr", "0",
		"--min-retry-delay", "50ms")
	var log bytes.Buffer
	cmd.Stderr = &log
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(syscall.SIGTERM) }, splitStop
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	var stopped bool
	s.stop = func() string {
		if !stopped {
			stopped = true
			cancel()
			_ = cmd.Wait() // ended by the signal
		}
		return log.String()
	}
	s.Cleanup(func() { s.stop() })
}

// commit writes ConfigMaps by name and value; an empty value deletes one. It returns the commit.
func (s *logged) commit(pairs ...string) string {
	s.Helper()
	files := map[string]string{}
	for pair := range slices.Chunk(pairs, 2) {
		files[pair[0]+".yaml"] = ""
		if pair[1] != "" {
			files[pair[0]+".yaml"] = fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\n"+
				"data: {k: %q}\n", pair[0], pair[1])
		}
	}
	return s.git.Commit("app", files)
}

func (s *logged) until(what string, isDone func(k *kustomizev1.Kustomization) bool) {
	s.Helper()
	testenv.Eventually(s, what, func() error {
		k := &kustomizev1.Kustomization{}
		err := s.Get(s.Context(), client.ObjectKey{Namespace: s.namespace, Name: "app"}, k)
		if err == nil && !isDone(k) {
			err = fmt.Errorf("%+v", k.Status)
		}
		return err
	})
}

// fails commits a manifest that cannot be applied, and waits for several tries. It returns the
// commit.
func (s *logged) fails() string {
	s.Helper()
	commit := s.git.Commit("app", map[string]string{
		"broken.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: broken}\ndata: [1]\n"})
	pull(s.T, s.Client, s.namespace)
	s.until("the change fails", func(k *kustomizev1.Kustomization) bool { return !reconcile.IsReady(k) })
	for n := range 3 {
		stamp := fmt.Sprint("try ", n)
		s.change(func(k *kustomizev1.Kustomization) {
			k.SetAnnotations(map[string]string{meta.ReconcileRequestAnnotation: stamp})
		})
		s.until("it is tried again", func(k *kustomizev1.Kustomization) bool {
			return k.Status.LastHandledReconcileAt == stamp
		})
	}
	return commit
}

func (s *logged) gate() {
	s.Helper()
	gate := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "release"},
		Spec: gatingv1.GateSpec{Default: gatingv1.Closed, Interval: meta.Duration{Duration: time.Minute}}}
	if err := s.Create(s.Context(), gate); err != nil {
		s.Fatal(err)
	}
	s.change(func(k *kustomizev1.Kustomization) { k.Spec.Gates = []meta.GateReference{{Name: "release"}} })
}

// change patches the Kustomization.
func (s *logged) change(by func(k *kustomizev1.Kustomization)) {
	s.Helper()
	k := &kustomizev1.Kustomization{}
	if err := s.Get(s.Context(), client.ObjectKey{Namespace: s.namespace, Name: "app"}, k); err != nil {
		s.Fatal(err)
	}
	before := k.DeepCopy()
	by(k)
	if err := s.Patch(s.Context(), k, client.MergeFrom(before)); err != nil {
		s.Fatal(err)
	}
}
