package cluster

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// claim marks a claim as bound, as the storage of a cloud would make it; not one that is to stay pending.
func (s *simulator) claim(ctx context.Context, claim *corev1.PersistentVolumeClaim) (time.Duration, error) {
	if claim.Status.Phase == corev1.ClaimBound || claim.DeletionTimestamp != nil ||
		claim.Annotations[FailAnnotation] == failPending {
		return 0, nil
	}
	claim = claim.DeepCopy()
	claim.Status.Phase = corev1.ClaimBound
	claim.Status.AccessModes, claim.Status.Capacity = claim.Spec.AccessModes, claim.Spec.Resources.Requests
	_, err := s.client.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	return 0, err
}

// service gives a load balancer its address, as a cloud would.
func (s *simulator) service(ctx context.Context, service *corev1.Service) (time.Duration, error) {
	if service.Spec.Type != corev1.ServiceTypeLoadBalancer || service.Spec.LoadBalancerClass != nil ||
		len(service.Status.LoadBalancer.Ingress) > 0 || service.DeletionTimestamp != nil {
		return 0, nil
	}
	v := number(service.UID)
	service = service.DeepCopy()
	service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{
		{IP: fmt.Sprintf("172.19.%d.%d", (v>>8)&0xff, 1+v%253)}}
	_, err := s.client.CoreV1().Services(service.Namespace).UpdateStatus(ctx, service, metav1.UpdateOptions{})
	return 0, err
}
