package view

import (
	"fmt"
	"regexp"
	"strings"
)

// advice is what to do about causes that messages of Kubernetes, of kubelets and of networks name. The first match
// counts. In a text, %s is the namespace.
var advice = []struct {
	cause *regexp.Regexp
	do    string
}{
	{regexp.MustCompile(`(?i)exceeded quota|quota '[^']+' is exhausted`),
		"raise the ResourceQuota, or delete what is not needed: kubectl -n %s describe quota"},
	{regexp.MustCompile(`failed calling webhook`),
		"repair the service of the webhook; if its program was removed, delete its configuration: kubectl get " +
			"validatingwebhookconfigurations,mutatingwebhookconfigurations"},
	{regexp.MustCompile(`(?i)admission webhook .* denied|denied the request|ValidatingAdmissionPolicy .* denied`),
		"change the object in git as the webhook or policy asks, or ask its owner for an exception"},
	{regexp.MustCompile(`ImagePullBackOff|ErrImagePull|InvalidImageName|ImageInspectError`),
		"correct the image in git, or the pull secret; look at the pull: kubectl -n %s describe pod"},
	{regexp.MustCompile(`Unschedulable|FailedScheduling|nodes are available`),
		"add a node, or lower what the pod asks for: requests, selectors, tolerations. kubectl -n %s describe pod"},
	{regexp.MustCompile(`(?i)FailedMount|FailedAttachVolume|ProvisioningFailed|persistentvolumeclaim`),
		"create the volume, Secret or ConfigMap that the message names: kubectl -n %s describe pod"},
	{regexp.MustCompile(`CreateContainerConfigError|(?i)secrets? ['"]?[^ ]*['"]? (not found|does not exist)|` +
		`Secret '[^']+' (not found|does not exist|is missing)`),
		"create what the message names in namespace '%s', or correct its name in git"},
	{regexp.MustCompile(`CrashLoopBackOff|exit code`),
		"read the log of the container that ended: kubectl -n %s logs POD --previous"},
	{regexp.MustCompile(`(?i)readiness probe|liveness probe|startup probe`),
		"read the log of the pod and compare its port and path with the probe: kubectl -n %s logs POD"},
	{regexp.MustCompile(`(?i)connection refused|no such host|i/o timeout|no route to host|network is unreachable|` +
		`cannot reach|cannot connect|bad gateway|service unavailable`),
		"check that the host runs and that the cluster reaches it. It is retried by itself; sluice reconcile retries " +
			"at once"},
	{regexp.MustCompile(`(?i)yaml|cannot unmarshal|mapping values|did not find expected`),
		"correct the file that the message names, in git; sluice build checks it before a push"},
}

// Advise returns what to do about the cause that a message names, or the fallback.
func Advise(namespace, message, fallback string) string {
	for _, a := range advice {
		if !a.cause.MatchString(message) {
			continue
		}
		if strings.Contains(a.do, "%s") {
			return fmt.Sprintf(a.do, namespace)
		}
		return a.do
	}
	return fallback
}

// ours are the finalizers that the controllers remove.
const ours = "finalizers.fluxcd.io"

// DeletionAdvice returns what to do about an object whose deletion finalizers hold.
func DeletionAdvice(kind, namespace, name string, finalizers []string) string {
	for _, f := range finalizers {
		if f == ours {
			continue
		}
		if namespace != "" {
			namespace = "-n " + namespace + " "
		}
		return fmt.Sprintf("find who removes finalizer '%s': its controller may be gone. If it is, remove the "+
			"finalizer: kubectl %sedit %s %s", f, namespace, strings.ToLower(kind), name)
	}
	return "wait for what the message names; if nothing happens, see whether the controllers work: sluice check"
}
