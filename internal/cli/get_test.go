package cli

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

func TestGetBeforeInstall(t *testing.T) {
	without(t)
	for _, line := range []string{"get all", "get ks", "get sources git -w", "reconcile ks app", "suspend ks --all"} {
		at(t, strings.Fields(line)...).wants(t, exitFailed, "Run sluice install")
	}
}

func TestGet(t *testing.T) {
	c, namespace := withDefinitions(t)
	samples(t, c, namespace)
	for file, line := range map[string]string{
		"all.txt":         "get all",
		"git.txt":         "get sources git",
		"one.txt":         "get source git app",
		"sources.txt":     "get sources all --no-header",
		"with-source.txt": "get ks --show-source",
		"charts.txt":      "get sources chart --show-source",
		"generators.txt":  "get artifacts generators",
		"not-ready.txt":   "get all --status-selector ready=false",
		"unknown.txt":     "get all --status-selector Ready=Unknown",
		"labels.txt":      "get all -l team=a",
		"everywhere.txt":  "get ks -A -l in=NAMESPACE",
		"names.txt":       "get all -o name",
		"one.yaml":        "get source git app -o yaml",
		"list.json":       "get ks common -o json",
	} {
		t.Run(line, func(t *testing.T) {
			line = strings.ReplaceAll(line, "NAMESPACE", namespace)
			r := at(t, append(strings.Fields(line), "-n", namespace)...).wants(t, exitOK)
			golden(t, "get-"+file, r.out)
		})
	}
	at(t, "get", "ks", "none", "-n", namespace).
		wants(t, exitFailed, "Kustomization '"+namespace+"/none' not found", "sluice get kustomizations -A")
	at(t, "get", "source", "git", "none", "-n", namespace).wants(t, exitFailed, "sluice get source git -A")
	wide := at(t, "get", "ks", "common", "-o", "wide", "-n", namespace).wants(t, exitOK).out
	if !strings.Contains(wide, "AGE") || !strings.Contains(wide, strings.Repeat("4f17", 10)) {
		t.Errorf("the wide output lacks the age or the complete revision:\n%s", wide)
	}
	empty := testenv.Namespace(t)
	if r := at(t, "get", "all", "-o", "json", "-n", empty).
		wants(t, exitOK, "nothing found"); !strings.Contains(r.out, `"items": []`) {
		t.Errorf("no empty list: %s", r.out)
	}
	r := at(t, "get", "ks", "-n", namespace, "--verbose").
		wants(t, exitOK, "/namespaces/"+namespace+"/kustomizations", "200 OK")
	if strings.Contains(r.out, "200 OK") {
		t.Error("standard output contains progress")
	}
	forbidden := at(t, "get", "ks", "-n", namespace, "--as", "guest").
		wants(t, exitFailed, "cannot list Kustomization objects", "Ask an administrator")
	if forbidden.out != "" {
		t.Errorf("a failed command printed: %s", forbidden.out)
	}
	if r := run(t, "__complete", "--kubeconfig", testenv.Kubeconfig(t), "-n", namespace, "suspend", "ks", "common", "").
		wants(t, exitOK); !strings.HasPrefix(r.out, "fresh\n") {
		t.Errorf("completion offers %q, want the name that is not on the command line", r.out)
	}
}

// TestObjectsAsKindAndName checks KIND/NAME, and its completion.
func TestObjectsAsKindAndName(t *testing.T) {
	c, namespace := withDefinitions(t)
	samples(t, c, namespace)
	for line, want := range map[string]string{
		"get ks/common":                             "common ",
		"get -o name gitrepository/app":             "gitrepository.source.toolkit.fluxcd.io/app\n",
		"get src git --no-header gitrepository/app": "app ",
		"export ks/common":                          "kind: Kustomization",
		"debug ks/common --show-status":             "status:",
		"__complete get ks/co":                      "ks/common\n",
		"__complete gate open rel":                  ":4\n",
	} {
		args, first := strings.Fields(line), 1
		if args[0] == "__complete" {
			first = 2
		}
		r := run(t, slices.Insert(args, first, "-n", namespace, "--kubeconfig", testenv.Kubeconfig(t))...).
			wants(t, exitOK)
		if !strings.Contains(r.out, want) {
			t.Errorf("%q prints %q, want %q", line, r.out, want)
		}
	}
	for flag, want := range map[string]string{"-o": "json\n", "-n": namespace + "\n"} {
		r := run(t, "__complete", "get", "ks", "--kubeconfig", testenv.Kubeconfig(t), flag, want[:2]).wants(t, exitOK)
		if !strings.Contains(r.out, want) {
			t.Errorf("%s is completed with %q, want %q", flag, r.out, want)
		}
	}
}

// TestGetWatchPrintsVisibleChanges checks that changes without effect on the table are not printed.
func TestGetWatchPrintsVisibleChanges(t *testing.T) {
	c, namespace := withDefinitions(t)
	samples(t, c, namespace)
	next, stop := follow(t, "get", "ks", "-w", "-n", namespace)
	next("NAME", "REVISION", "SUSPENDED", "READY", "MESSAGE")
	next("common", "True")
	next("fresh", "Unknown")
	change := func(modify func(*kustomizev1.Kustomization)) {
		t.Helper()
		ks := &kustomizev1.Kustomization{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "fresh"}, ks); err != nil {
			t.Fatal(err)
		}
		before := ks.DeepCopy()
		modify(ks)
		if err := c.Patch(t.Context(), ks, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	change(func(ks *kustomizev1.Kustomization) { ks.Spec.Path = "./not/in/the/table" })
	change(func(ks *kustomizev1.Kustomization) { ks.Spec.Suspend = true })
	next("fresh", "True", "Unknown")
	change(func(ks *kustomizev1.Kustomization) { ks.Spec.Suspend = false })
	next("fresh", "False", "Unknown")
	stop()
	expiresWith(t, exitOK, []string{"get", "ks", "-w", "-n", namespace}, "stopped after --timeout TIMEOUT")
	expiresWith(t, exitOK, []string{"events", "-w", "-n", namespace}, "stopped after --timeout TIMEOUT")
}
