package differential

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// versions are declarations of one object, which are applied one after the other. Each is a list of lines of YAML.
type versions [][]string

// deployments are parts of a Deployment, each a field of its container or its Pod.
var deployments = []string{
	"      terminationGracePeriodSeconds: 5", "      nodeSelector: {disk: ssd}", "      hostAliases: [{ip: 10.0.0.1}]",
	"      tolerations: [{operator: Exists}]", "      securityContext: {runAsUser: 1000, fsGroup: 2}",
	"      volumes: [{name: v, emptyDir: {}}, {name: w, configMap: {name: c, items: [{key: a, path: b}]}}]",
	"      volumes: [{name: v, emptyDir: {sizeLimit: 0.5Gi}}]",
	"      initContainers: [{name: i, image: i, env: [{name: A, value: '1'}]}]",
}

var containers = []string{
	", env: [{name: A, value: '1'}, {name: B, value: '2'}]", ", env: [{name: B, value: '3'}]",
	", env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]", ", args: [a, b]", ", args: [b]",
	", ports: [{containerPort: 80}, {containerPort: 80, protocol: UDP}]", ", ports: [{containerPort: 81, name: web}]",
	", resources: {requests: {cpu: 0.5, memory: 1.5Gi}}", ", resources: {limits: {cpu: 100m, memory: '1e3'}}",
	", readinessProbe: {httpGet: {path: /, port: 80}}", ", securityContext: {readOnlyRootFilesystem: true}",
	", imagePullPolicy: Always", ", command: []", ", lifecycle: {preStop: {exec: {command: [x]}}}",
}

// versionsOf generates two or three versions of an object.
func versionsOf(r *rand.Rand) (all versions) {
	kind := r.IntN(3)
	for range 2 + r.IntN(2) {
		lines := []string{"metadata:", "  name: NAME"}
		if chance(r, 2) {
			lines = append(lines, "  labels: {team: "+pick(r, "a", "b")+"}")
		}
		if chance(r, 3) {
			lines = append(lines, "  annotations: {note: '"+pick(r, "1", "true", "")+"'}")
		}
		switch kind {
		case 0:
			lines = append(lines, "apiVersion: v1", "kind: ConfigMap",
				"data: {k: '"+pick(r, "1", "x\\ny", "")+"'"+pick(r, "", ", l: 'on'")+"}")
		case 1:
			lines = append(lines, "apiVersion: v1", "kind: Service", "spec:", "  selector: {app: x}",
				"  ports: ["+pick(r, "{port: 80}", "{port: 80, name: a}, {port: 81, name: b}",
					"{port: 80, targetPort: web}", "{port: 80, protocol: UDP}")+"]",
				"  "+pick(r, "type: ClusterIP", "sessionAffinity: ClientIP", "internalTrafficPolicy: Local"))
		default:
			lines = append(lines, "apiVersion: apps/v1", "kind: Deployment", "spec:",
				"  selector: {matchLabels: {app: x}}",
				"  "+pick(r, "replicas: 0", "paused: true", "minReadySeconds: 3"),
				"  template:", "    metadata: {labels: {app: x}}", "    spec:", "      containers: [{name: c, image: i"+
					pick(r, containers...)+"}]", pick(r, deployments...))
		}
		all = append(all, lines)
	}
	return all
}

// TestAppliesAreThoseOfKubectl applies versions of generated objects with kubectl's server-side apply and here, each in
// a namespace of its own, and compares the objects after each.
func TestAppliesAreThoseOfKubectl(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Skip("kubectl is not installed: applies are not compared with its own")
	}
	cluster, err := apply.NewCluster(testenv.Cluster(t), apply.ClusterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	a := &applies{cluster: cluster, kubeconfig: testenv.Kubeconfig(t), by: testenv.Namespace(t),
		here: testenv.Namespace(t)}
	comparison[versions]{
		quick: 8, full: 80, generate: versionsOf, compare: a.compare,
		smaller: func(in versions) (all []versions) {
			for i := range in {
				all = append(all, slices.Delete(slices.Clone(in), i, i+1))
				for j := range in[i] {
					with := slices.Clone(in)
					with[i] = slices.Delete(slices.Clone(in[i]), j, j+1)
					all = append(all, with)
				}
			}
			return all
		},
		show: func(in versions) string {
			var out strings.Builder
			for _, lines := range in {
				out.WriteString(strings.Join(lines, "\n") + "\n---\n")
			}
			return out.String()
		},
	}.run(t)
}

// applies are two namespaces: one that kubectl applies to, and one that Sluice does.
type applies struct {
	cluster              *apply.Cluster
	kubeconfig, by, here string
	count                int
}

// kubectl runs a command in a namespace.
func (a *applies) kubectl(t *testing.T, namespace, input string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "kubectl", append(args, "--kubeconfig", a.kubeconfig, "-n", namespace)...)
	cmd.Stdin = strings.NewReader(input)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, stderr.String())
	}
	return string(out), nil
}

func (a *applies) compare(t *testing.T, in versions) string {
	t.Helper()
	a.count++
	var inventory apply.Inventory
	for i, lines := range in {
		text := strings.ReplaceAll(strings.Join(lines, "\n"), "NAME", fmt.Sprintf("n%d", a.count))
		declared := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &declared.Object); err != nil || declared.GetKind() == "" ||
			declared.GetName() == "" {
			return "" // no object is left
		}
		_, wantErr := a.kubectl(t, a.by, text, "apply", "--server-side", "-f", "-")
		declared.SetNamespace(a.here)
		owner := apply.Owner{Group: "test.io", Namespace: a.here, Name: "n"}
		result, err := a.cluster.Apply(t.Context(), apply.Request{Owner: owner,
			Objects: []*unstructured.Unstructured{declared}, Previous: inventory, Native: true})
		if (err == nil) != (wantErr == nil) {
			return fmt.Sprintf("version %d: kubectl: %v, here: %v", i, wantErr, err)
		}
		if err != nil {
			return ""
		}
		inventory = result.Inventory
		want, got := a.get(t, a.by, declared), a.get(t, a.here, declared)
		if got != want {
			return fmt.Sprintf("version %d: kubectl gives\n%s\nhere\n%s", i, want, got)
		}
	}
	return ""
}

// get returns what appliers decide of an object: not what the API server and controllers set.
func (a *applies) get(t *testing.T, namespace string, of *unstructured.Unstructured) string {
	t.Helper()
	text, err := a.kubectl(t, namespace, "", "get", of.GetKind(), of.GetName(), "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	labels, annotations := o.GetLabels(), o.GetAnnotations()
	maps.DeleteFunc(labels, func(key, _ string) bool { return strings.HasPrefix(key, "test.io/") }) // of the owner
	maps.DeleteFunc(annotations, func(key, _ string) bool {
		return strings.HasPrefix(key, "deployment.kubernetes.io/")
	})
	for _, field := range []string{"clusterIP", "clusterIPs"} {
		unstructured.RemoveNestedField(o.Object, "spec", field)
	}
	return fmt.Sprint(labels, annotations, o.Object["data"], o.Object["spec"])
}
