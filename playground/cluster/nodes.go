package cluster

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
)

// simulator is what would be machines: the scheduler, the kubelets, the storage and the load balancers.
type simulator struct {
	client  kubernetes.Interface
	nodes   listers.NodeLister
	events  record.EventRecorder
	started sync.Map // types.UID of a pod to the time.Time when its node took it
}

// startSimulator registers nodes and brings pods, claims and services to life until the context ends.
func startSimulator(ctx context.Context, cfg *rest.Config, count int) error {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	port, err := serveLogs(ctx, client)
	if err != nil {
		return err
	}
	for i := range max(count, 1) {
		if err := registerNode(ctx, client, i); err != nil {
			return err
		}
		if err := setLogs(ctx, client, nodeName(i), port); err != nil {
			return err
		}
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcore.EventSinkImpl{Interface: client.CoreV1().Events("")})
	factory := informers.NewSharedInformerFactory(client, 0)
	core := factory.Core().V1()
	s := &simulator{
		client: client,
		nodes:  core.Nodes().Lister(),
		events: broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "playground"}),
	}
	factory.Start(ctx.Done()) // the nodes first: pods are bound to them
	factory.WaitForCacheSync(ctx.Done())
	if err := loop(ctx, core.Pods().Informer(), workers, s.pod); err != nil {
		return err
	}
	if err := loop(ctx, core.PersistentVolumeClaims().Informer(), workers, s.claim); err != nil {
		return err
	}
	if err := loop(ctx, core.Services().Informer(), workers, s.service); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	return nil
}

// nodeSubnet holds the addresses of the nodes; the first is a gateway's.
const nodeSubnet = "172.18.0."

func nodeName(i int) string { return fmt.Sprintf("node-%d", i+1) }

// registerNode makes a node that is Ready and has room for everything.
func registerNode(ctx context.Context, client kubernetes.Interface, i int) error {
	name := nodeName(i)
	nodes := client.CoreV1().Nodes()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
	}}}
	_, err := nodes.Create(ctx, node, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil // from an earlier run on the same directory
	}
	if err != nil {
		return err
	}
	if node, err = nodes.Get(ctx, name, metav1.GetOptions{}); err != nil {
		return err
	}
	node.Spec.Taints = nil // admission makes every new node not-ready
	if node, err = nodes.Update(ctx, node, metav1.UpdateOptions{}); err != nil {
		return err
	}
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods: resource.MustParse("1000"),
	}
	now := metav1.Now()
	node.Status = corev1.NodeStatus{
		Capacity: room, Allocatable: room,
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
			Message:           "simulated node is ready",
			LastHeartbeatTime: now, LastTransitionTime: now,
		}},
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: fmt.Sprint(nodeSubnet, i+2)},
			{Type: corev1.NodeHostName, Address: name},
			{Type: corev1.NodeExternalIP, Address: logHost},
		},
		NodeInfo: corev1.NodeSystemInfo{
			KubeletVersion: kubernetesVersion(), OSImage: "simulated", OperatingSystem: "linux", Architecture: "amd64",
			ContainerRuntimeVersion: "simulated://1",
		},
	}
	_, err = nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}
