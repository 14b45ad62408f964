package bench

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// fourObjects is an app as the issue describes it.
func fourObjects(app int, version string) []string {
	name := appName(app)
	labels := fmt.Sprintf("metadata: {name: %s, labels: {app: %s, version: %q}}\n", name, name, version)
	return []string{
		"apiVersion: v1\nkind: ServiceAccount\n" + labels,
		"apiVersion: v1\nkind: Service\n" + labels + fmt.Sprintf(
			"spec: {selector: {app: %s}, ports: [{name: http, port: 80, targetPort: http}]}\n", name),
		"apiVersion: apps/v1\nkind: Deployment\n" + labels + fmt.Sprintf(`spec:
  replicas: 0
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      serviceAccountName: %[1]s
      containers:
      - name: main
        image: example/app:%[2]s
        ports: [{name: http, containerPort: 8080}]
        resources: {requests: {cpu: 100m, memory: 64Mi}}
`, name, version),
		"apiVersion: networking.k8s.io/v1\nkind: Ingress\n" + labels + fmt.Sprintf(`spec:
  rules:
  - host: %[1]s.example.com
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: %[1]s, port: {name: http}}}}]}
`, name),
	}
}

// BenchmarkFleet applies 1,000 Kustomizations (-fleet N) of four objects, of one repository: all new at once, all
// changed by one commit, and one changed by a commit. For comparison with the former two it applies the same
// objects in a bare loop. 500 apps share a namespace.
func BenchmarkFleet(b *testing.B) {
	f := newFleet(b, *fleetSize, fourObjects)
	bare, err := dynamic.NewForConfig(testenv.Cluster(b))
	if err != nil {
		b.Fatal(err)
	}
	before, after, target := f.namespaces(), f.namespaces(), f.namespaces()
	f.change = func(app int, k *kustomizev1.Kustomization) { k.Spec.TargetNamespace = target(app) }
	head1 := f.commit("1", f.all()...)
	f.declare()
	t := newTable(fmt.Sprintf("%d Kustomizations of four objects, one repository", *fleetSize), head...)
	for b.Loop() {
		theirs := loop(b, bare, f.objects(before, "1"))
		quiet(b)
		start := usage{at: time.Now(), server: cpuTime(b, testenv.ClusterPID(b))}
		log, wait := testenv.NewAuditLog(b), f.follow(head1)
		p := startController(b, f.namespace)
		wait()
		ours := since(start, p.usage())
		asked := p.requests(log, testenv.Request{})
		theirs = mean(theirs, loop(b, bare, f.objects(after, "1")))
		t.compare(b, "create all", ours, theirs, 4*(*fleetSize), asked, p.memory("VmHWM"))
		byKind(b, log)

		theirs = loop(b, bare, f.objects(before, "2"))
		head2 := f.commit("2", f.all()...)
		quiet(b)
		log, wait = testenv.NewAuditLog(b), f.follow(head2)
		start = p.usage()
		f.pull()
		wait()
		ours = since(start, p.usage())
		asked = p.requests(log, testenv.Request{})
		theirs = mean(theirs, loop(b, bare, f.objects(after, "2")))
		t.compare(b, "change all", ours, theirs, 4*(*fleetSize), asked, p.memory("VmHWM"))
		byKind(b, log)

		quiet(b)
		head3 := f.commit("3", 7)
		log, wait = testenv.NewAuditLog(b), f.follow(head3)
		start = p.usage()
		f.pull()
		wait()
		ours = since(start, p.usage())
		quiet(b) // what is said afterwards counts, too
		f.touchOne(p, log, ours)
		p.stop()
	}
}

// byKind logs what the process asked for, most first.
func byKind(b *testing.B, log *testenv.AuditLog) {
	b.Helper()
	count := map[string]int{}
	for _, r := range log.Requests(b, testenv.Request{UserAgent: "sluice"}) {
		what := r.Verb + " " + r.Resource
		if r.Subresource != "" {
			what += "/" + r.Subresource
		}
		if strings.Contains(r.URI, "dryRun=All") {
			what += " (dry)"
		}
		count[what]++
	}
	for _, what := range slices.SortedFunc(maps.Keys(count), func(x, y string) int { return count[y] - count[x] }) {
		if count[what] > 1 {
			b.Logf("%6d %s", count[what], what)
		}
	}
}

// touchOne adds the cost of a commit to one app to the table.
func (f *fleet) touchOne(p *process, log *testenv.AuditLog, ours measured) {
	b := f.b
	b.Helper()
	statuses := p.requests(log, testenv.Request{Verb: "patch", Resource: "kustomizations", Subresource: "status"})
	objects := 0
	for _, resource := range []string{"deployments", "serviceaccounts", "services", "ingresses"} {
		objects += p.requests(log, testenv.Request{Resource: resource})
	}
	all := p.requests(log, testenv.Request{})
	t := newTable(fmt.Sprintf("%d Kustomizations, a commit touches one", *fleetSize), "time s", "CPU s",
		"API server CPU s", "requests for objects", "status writes", "events and all else", "MB on the wire")
	t.row(ours.took.Seconds(), ours.cpu.Seconds(), ours.server.Seconds(), objects, statuses, all-objects-statuses,
		float64(ours.bytes)/1e6)
	b.ReportMetric(float64(objects), "object-requests/commit")
	b.ReportMetric(float64(statuses)/float64(*fleetSize), "status-writes/kustomization")
	byKind(b, log)
}
