package cli

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/cli/install"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// controllerPod creates a node whose kubelet serves only logs, with a controller Pod on it. Lines sent to the
// channel are appended to the log.
func controllerPod(t *testing.T, c client.Client, namespace string, log []string) chan<- string {
	t.Helper()
	more := make(chan string)
	kubelet := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lines := log
		if n, err := strconv.Atoi(r.URL.Query().Get("tailLines")); err == nil {
			lines = lines[max(0, len(lines)-n):]
		}
		since := r.URL.Query().Get("sinceSeconds")
		if at, err := time.Parse(time.RFC3339, r.URL.Query().Get("sinceTime")); err == nil {
			since = at.UTC().Format(time.RFC3339) // the API server converts it to its own time zone
		}
		if since != "" {
			lines = append([]string{"since " + since}, lines...)
		}
		fmt.Fprintln(w, strings.Join(lines, "\n"))
		for r.URL.Query().Get("follow") == "true" {
			w.(http.Flusher).Flush()
			select {
			case line := <-more:
				fmt.Fprintln(w, line)
			case <-r.Context().Done():
				return
			}
		}
	}))
	t.Cleanup(kubelet.Close)
	_, port, err := net.SplitHostPort(kubelet.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if err := c.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Delete(context.WithoutCancel(t.Context()), node); err != nil {
			t.Error(err)
		}
	})
	before := node.DeepCopy()
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(number)
	if err := c.Status().Patch(t.Context(), node, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "sluice",
		Labels: installedLabels(t)[options.KustomizeController]}}
	pod.Spec = corev1.PodSpec{NodeName: node.Name,
		Containers: []corev1.Container{{Name: "sluice", Image: "example.com/sluice"}}}
	testenv.AwaitAccount(t, namespace)
	if err := c.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	return more
}

// installedLabels returns the labels of the Pods of all ways to install, by the names of their Deployments.
func installedLabels(t *testing.T) map[string]map[string]string {
	t.Helper()
	all := map[string]map[string]string{}
	for _, split := range []bool{false, true} {
		o := install.Default("v1")
		o.Split = split
		objects, err := install.Manifests(o)
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range objects {
			if u.GetKind() == "Deployment" {
				pod, _, err := unstructured.NestedStringMap(u.Object, "spec", "template", "metadata", "labels")
				if err != nil {
					t.Fatal(err)
				}
				all[u.GetName()] = pod
			}
		}
	}
	return all
}

func TestLogsFindThePodsOfAllInstallations(t *testing.T) {
	selector, err := labels.Parse(controllerPods)
	if err != nil {
		t.Fatal(err)
	}
	all := installedLabels(t)
	if len(all) <= len(options.AllControllers) {
		t.Errorf("labels of %d Deployments", len(all))
	}
	for name, pod := range all {
		if !selector.Matches(labels.Set(pod)) {
			t.Errorf("Pods of Deployment '%s' have labels %v", name, pod)
		}
	}
}

func TestLogs(t *testing.T) {
	c, namespace := withDefinitions(t)
	at(t, "logs", "--flux-namespace", namespace).
		wants(t, exitFailed, "no controllers found in namespace '"+namespace+"'")
	more := controllerPod(t, c, namespace, []string{
		"not in JSON \x1b[2J",
		`{"level":"info","ts":"2026-01-02T15:04:05.000Z","msg":"starting"}`,
		`{"level":"info","ts":"2026-01-02T15:04:06.000Z","logger":"Kustomization","msg":"failed",` +
			`"namespace":"apps","name":"web","reason":"BuildFailed","message":"no such\nfile"}`,
		`{"level":"error","ts":"2026-01-02T15:04:07.000Z","msg":"panicked",` +
			`"controllerKind":"GitRepository","namespace":"apps","name":"app","error":"boom"}`,
		`{"level":"debug","ts":"2026-01-02T15:04:08.000Z","logger":"Kustomization","msg":"done",` +
			`"namespace":"other","name":"web"}`,
	})
	ask := func(line string) result {
		t.Helper()
		return at(t, append(strings.Fields(line), "--flux-namespace", namespace)...)
	}
	golden(t, "logs.txt", ask("logs -A").wants(t, exitOK).out)
	for line, want := range map[string][]string{
		"logs -n apps":                                       {"not in", "starting", "failed", "panicked"},
		"logs -A --level error":                              {"panicked"},
		"logs -A --kind ks":                                  {"failed", "done"},
		"logs -A --kind kustomization --name web":            {"failed", "done"},
		"logs -n other --name web":                           {"done"},
		"logs -A --tail 1":                                   {"done"},
		"logs -A --tail 0 --since 90s":                       {"since 90"},
		"logs -A --tail 0 --since-time 2026-01-02T15:04:05Z": {"since 2026-01-02T15:04:05Z"},
	} {
		t.Run(line, func(t *testing.T) {
			lines := strings.FieldsFunc(ask(line).wants(t, exitOK).out, func(r rune) bool { return r == '\n' })
			if len(lines) != len(want) {
				t.Fatalf("got %d lines, want %d:\n%s", len(lines), len(want), strings.Join(lines, "\n"))
			}
			for i, w := range want {
				if !strings.Contains(lines[i], w) {
					t.Errorf("line %d is %q, want %q in it", i, lines[i], w)
				}
			}
		})
	}
	for line, want := range map[string]string{
		"logs --level loud":              "choose from debug",
		"logs --since 1m --since-time x": "exclude each other",
		"logs --since-time yesterday":    "--since-time",
		"logs --since -1m":               "in the future",
	} {
		ask(line).wants(t, exitUsage, want)
	}

	next, stop := follow(t, "logs", "--follow", "-A", "--tail", "0", "--flux-namespace", namespace)
	more <- `{"level":"info","msg":"later"}`
	next("later")
	stop()
}
