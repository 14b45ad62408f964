package install

import (
	"testing"

	"github.com/sluice-gitops/sluice/internal/cluster/health"
)

func TestHintFitsTheReasonOfThePod(t *testing.T) {
	target := health.Target{Kind: "Deployment", Namespace: "sluice-system", Name: "sluice"}
	i := &installer{}
	i.Registry, i.Version = "registry.example", "v1.2.3"
	for message, want := range map[string]string{
		"ImagePullBackOff: Back-off pulling image": "The nodes cannot pull image " + i.ImageReference() +
			": check --registry, --version, --image-pull-secret and --registry-creds",
		"CrashLoopBackOff: back-off 10s": "Read why the process ended: kubectl -n sluice-system logs " +
			"deployment/sluice --previous",
		"Unschedulable: 0/3 nodes": "No node takes the pod: add a node, free capacity, or set --toleration-keys",
		"FailedCreate: exceeded quota: small": "Raise the ResourceQuota of namespace 'sluice-system', or free " +
			"objects",
		`FailedCreate: violates PodSecurity "restricted"`: "An admission check of the cluster refuses the pod: " +
			"exempt namespace 'sluice-system' from it",
		"FailedCreate: no PriorityClass with name high was found": "The cluster refuses the pod: correct what the " +
			"message names",
		"FailedMount: secret not found": "The node cannot start the container: kubectl -n sluice-system describe pod " +
			"-l app=sluice",
		"0 of 1 replicas available": "",
	} {
		if got := i.hint(target, message); got != want {
			t.Errorf("%s: got hint %q, want %q", message, got, want)
		}
	}
	const want = "Raise --timeout, or run kubectl -n sluice-system describe deployment sluice"
	if got := timeoutHint(target); got != want {
		t.Errorf("without a reason: got hint %q, want %q", got, want)
	}
}
