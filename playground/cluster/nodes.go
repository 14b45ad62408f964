package cluster

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// Annotations by which a pod asks for a behaviour.
const (
	FailAnnotation  = "playground.sluice.dev/fail"
	DelayAnnotation = "playground.sluice.dev/delay"
)

// nodes is the scheduler and the kubelets in one: it binds pods to its nodes and reports what would become of them.
type nodes struct {
	client  kubernetes.Interface
	count   int
	pods    cache.SharedIndexInformer
	volumes cache.SharedIndexInformer
	queue   workqueue.TypedRateLimitingInterface[string]
}

func startNodes(ctx context.Context, cfg *rest.Config, count int) error {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	n := &nodes{
		client:  client,
		count:   max(count, 1),
		pods:    factory.Core().V1().Pods().Informer(),
		volumes: factory.Core().V1().PersistentVolumeClaims().Informer(),
		queue:   workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
	}
	for i := range n.count {
		if err := n.register(ctx, i); err != nil {
			return err
		}
	}
	if err := n.handle(n.pods, "pod"); err != nil {
		return err
	}
	if err := n.handle(n.volumes, "claim"); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for range workers {
		go n.work(ctx)
	}
	go func() {
		<-ctx.Done()
		n.queue.ShutDown()
	}()
	return nil
}

func (n *nodes) handle(informer cache.SharedIndexInformer, prefix string) error {
	enqueue := func(obj any) {
		if key, err := cache.MetaNamespaceKeyFunc(obj); err == nil {
			n.queue.Add(prefix + "/" + key)
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: func(_, obj any) { enqueue(obj) }})
	return err
}

func nodeName(i int) string { return fmt.Sprintf("node-%d", i+1) }

// register makes a node that is Ready and has room for everything.
func (n *nodes) register(ctx context.Context, i int) error {
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"), corev1.ResourcePods: resource.MustParse("1000"),
	}
	name := nodeName(i)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
	}}}
	if _, err := n.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	node, err := n.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	node.Status = corev1.NodeStatus{
		Capacity: room, Allocatable: room,
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "simulated node is ready",
			LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
		}},
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("172.18.0.%d", i+2)}, {Type: corev1.NodeHostName, Address: name}},
		NodeInfo: corev1.NodeSystemInfo{
			KubeletVersion: "v1.35.4", OSImage: "simulated", OperatingSystem: "linux", Architecture: "amd64", ContainerRuntimeVersion: "simulated://1",
		},
	}
	_, err = n.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

func (n *nodes) work(ctx context.Context) {
	for {
		key, shutdown := n.queue.Get()
		if shutdown {
			return
		}
		again, err := n.sync(ctx, key)
		switch {
		case err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err):
			klog.FromContext(ctx).Info("pod or claim not simulated", "key", key, "err", err)
			n.queue.AddRateLimited(key)
		case err != nil:
			n.queue.AddRateLimited(key)
		case again > 0:
			n.queue.AddAfter(key, again)
		default:
			n.queue.Forget(key)
		}
		n.queue.Done(key)
	}
}

// sync takes a pod or a claim one step further; it returns when to look again, 0 for when it changes.
func (n *nodes) sync(ctx context.Context, key string) (time.Duration, error) {
	kind, name := cut(key)
	if kind == "claim" {
		return 0, n.bindClaim(ctx, name)
	}
	obj, exists, err := n.pods.GetStore().GetByKey(name)
	if err != nil || !exists {
		return 0, err
	}
	pod := obj.(*corev1.Pod)
	switch {
	case pod.DeletionTimestamp != nil:
		now := int64(0)
		return 0, n.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	case pod.Spec.NodeName == "" && pod.Annotations[FailAnnotation] == "pending":
		return 0, n.report(ctx, pod, unschedulable())
	case pod.Spec.NodeName == "":
		return 0, n.bind(ctx, pod)
	}
	status, again := next(pod, time.Now())
	return again, n.report(ctx, pod, status)
}

func (n *nodes) bind(ctx context.Context, pod *corev1.Pod) error {
	h := fnv.New32a()
	_, _ = h.Write([]byte(pod.UID)) // never fails
	return n.client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: nodeName(int(h.Sum32() % uint32(n.count)))},
	}, metav1.CreateOptions{})
}

// report writes a status that differs from the pod's.
func (n *nodes) report(ctx context.Context, pod *corev1.Pod, status *corev1.PodStatus) error {
	if status == nil || sameStatus(&pod.Status, status) {
		return nil
	}
	pod = pod.DeepCopy()
	status.QOSClass = pod.Status.QOSClass
	pod.Status = *status
	_, err := n.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

// bindClaim marks a claim as bound: storage is simulated as well.
func (n *nodes) bindClaim(ctx context.Context, name string) error {
	obj, exists, err := n.volumes.GetStore().GetByKey(name)
	if err != nil || !exists {
		return err
	}
	claim := obj.(*corev1.PersistentVolumeClaim)
	if claim.Status.Phase == corev1.ClaimBound || claim.DeletionTimestamp != nil {
		return nil
	}
	claim = claim.DeepCopy()
	claim.Status.Phase = corev1.ClaimBound
	claim.Status.AccessModes, claim.Status.Capacity = claim.Spec.AccessModes, claim.Spec.Resources.Requests
	_, err = n.client.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	return err
}
