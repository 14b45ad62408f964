package cluster

import (
	"cmp"
	"context"
	"hash/fnv"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// rescheduling is how soon a pod that found no node looks again.
const rescheduling = 5 * time.Second

// schedule binds a pod to one of the nodes that its selector and its affinity allow, or says that there is none.
func (s *simulator) schedule(ctx context.Context, pod *corev1.Pod) (time.Duration, error) {
	if len(pod.Spec.SchedulingGates) > 0 {
		return 0, nil
	}
	nodes, err := s.candidates(pod)
	if err != nil {
		return 0, err
	}
	if len(nodes) == 0 {
		return rescheduling, s.report(ctx, pod, unschedulable(pod))
	}
	node := nodes[int(number(pod.UID)%uint32(len(nodes)))]
	return 0, s.client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node.Name},
	}, metav1.CreateOptions{})
}

func (s *simulator) candidates(pod *corev1.Pod) ([]*corev1.Node, error) {
	if pod.Annotations[FailAnnotation] == failPending {
		return nil, nil
	}
	nodes, err := s.nodes.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	required := nodeaffinity.GetRequiredNodeAffinity(pod)
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(node *corev1.Node) bool {
		fits, err := required.Match(node)
		return !fits || err != nil || node.Spec.Unschedulable
	})
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	return nodes, nil
}

// number is an object's own, the same whenever it is asked for.
func number(uid types.UID) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(uid)) // never fails
	return h.Sum32()
}
