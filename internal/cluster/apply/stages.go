package apply

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	definitionKind = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
	namespaceKind  = schema.GroupKind{Kind: "Namespace"}
	// serviceAccountKind is one of the kinds of the first line of order whose objects have no effect of their own.
	serviceAccountKind = schema.GroupKind{Kind: "ServiceAccount"}
)

// order lists the kinds that other objects depend on. All kinds of a line are applied at once, after those of the line
// above. Kinds that are not listed come after the last line.
var order = [][]string{
	{"CustomResourceDefinition", "Namespace", "StorageClass", "PriorityClass", "IngressClass", "RuntimeClass",
		"GatewayClass", "ClusterClass", "VolumeSnapshotClass", "DeviceClass"},
	{"ResourceQuota", "LimitRange"},
	{"ServiceAccount", "Role", "ClusterRole", "ConfigMap", "Secret", "PersistentVolume", "PersistentVolumeClaim"},
	{"RoleBinding", "ClusterRoleBinding"},
	{"Service", "Endpoints", "EndpointSlice", "NetworkPolicy", "PodDisruptionBudget"},
}

const (
	rankStep    = 10            // from a line of order to the next
	customRank  = rankStep / 2  // between the first and the second line
	defaultRank = 10 * rankStep // workloads, and custom resources
)

// rank returns the stage of a kind as a number. Kinds of CustomStage come right after the first line of order.
func (o ClusterOptions) rank(gk schema.GroupKind) int {
	for n, kinds := range order {
		if n == 1 && slices.Contains(o.CustomStage, gk) {
			return customRank
		}
		// Kinds of other groups may have the same name and another meaning.
		if slices.Contains(kinds, gk.Kind) &&
			(!strings.Contains(gk.Group, ".") || strings.HasSuffix(gk.Group, ".k8s.io") ||
				gk.Group == "cluster.x-k8s.io") {
			return n * rankStep
		}
	}
	switch {
	// Webhooks and aggregated APIs intercept requests: they come after the workloads that serve them.
	case gk.Group == "admissionregistration.k8s.io", gk.Group == "apiregistration.k8s.io":
		return defaultRank + 1
	default:
		return defaultRank
	}
}

type referenced interface{ reference() Ref }

// stages splits sorted objects by rank.
func stages[T referenced](o ClusterOptions, sorted []T) [][]T {
	var out [][]T
	for n, s := range sorted {
		if n == 0 || o.rank(sorted[n-1].reference().groupKind()) != o.rank(s.reference().groupKind()) {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], s)
	}
	return out
}

// byRank returns the comparison that sorts objects in the order of applying.
func byRank[T referenced](o ClusterOptions) func(a, b T) int {
	return func(a, b T) int {
		x, y := a.reference(), b.reference()
		return cmp.Or(cmp.Compare(o.rank(x.groupKind()), o.rank(y.groupKind())), x.compare(y))
	}
}

// ParseKinds parses kinds of the form GROUP/KIND, or <Kind> for the core group.
func ParseKinds(texts []string) ([]schema.GroupKind, error) {
	var kinds []schema.GroupKind
	for _, text := range texts {
		group, kind, found := strings.Cut(text, "/")
		if !found {
			group, kind = "", text
		}
		if kind == "" || strings.Contains(kind, "/") || strings.ToUpper(kind[:1]) != kind[:1] {
			return nil, fmt.Errorf("%q is not a kind: use GROUP/KIND, such as rbac.authorization.k8s.io/Role, "+
				"or Secret", text)
		}
		kinds = append(kinds, schema.GroupKind{Group: group, Kind: kind})
	}
	return kinds, nil
}
