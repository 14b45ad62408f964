package cluster

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	"k8s.io/kubernetes/pkg/controller/daemon"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/endpoint"
	"k8s.io/kubernetes/pkg/controller/endpointslice"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/controller/statefulset"

	v1 "k8s.io/api/core/v1"
)

const (
	workers      = 4
	burst        = 500
	perSlice     = 100
	resync       = 10 * time.Minute
	mapperResync = 5 * time.Second
)

// startControllers runs the real controllers of Kubernetes that a delivery is seen through.
func startControllers(ctx context.Context, cfg *rest.Config, ca []byte) error {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	meta, err := metadata.NewForConfig(cfg)
	if err != nil {
		return err
	}
	shared := informers.NewSharedInformerFactory(client, resync)
	core, apps := shared.Core().V1(), shared.Apps().V1()
	started := make(chan struct{})
	logger := klog.FromContext(ctx)

	runs := []func(context.Context, int){
		replicaset.NewReplicaSetController(ctx, apps.ReplicaSets(), core.Pods(), client, burst).Run,
		statefulset.NewStatefulSetController(ctx, core.Pods(), apps.StatefulSets(), core.PersistentVolumeClaims(), apps.ControllerRevisions(), client).Run,
		endpoint.NewEndpointController(ctx, core.Pods(), core.Services(), core.Endpoints(), client, 0).Run,
		endpointslice.NewController(ctx, core.Pods(), core.Services(), core.Nodes(), shared.Discovery().V1().EndpointSlices(), perSlice, client, 0).Run,
		namespace.NewNamespaceController(ctx, client, meta, client.Discovery().ServerPreferredNamespacedResources, core.Namespaces(), resync, v1.FinalizerKubernetes).Run,
	}
	add := func(run func(context.Context, int), e error) {
		runs = append(runs, run)
		if e != nil {
			err = e
		}
	}
	deployments, e := deployment.NewDeploymentController(ctx, apps.Deployments(), apps.ReplicaSets(), core.Pods(), client)
	add(deployments.Run, e)
	jobs, e := job.NewController(ctx, core.Pods(), shared.Batch().V1().Jobs(), client)
	add(jobs.Run, e)
	daemons, e := daemon.NewDaemonSetsController(ctx, apps.DaemonSets(), apps.ControllerRevisions(), core.Pods(), core.Nodes(), client,
		flowcontrol.NewBackOff(time.Second, 15*time.Minute))
	add(daemons.Run, e)
	accounts, e := serviceaccount.NewServiceAccountsController(logger, core.ServiceAccounts(), core.Namespaces(), client,
		serviceaccount.DefaultServiceAccountsControllerOptions())
	add(accounts.Run, e)
	publisher, e := rootcacertpublisher.NewPublisher(core.ConfigMaps(), core.Namespaces(), client, ca)
	add(publisher.Run, e)
	if err != nil {
		return err
	}
	if err := startGarbageCollector(ctx, client, meta, shared, started); err != nil {
		return err
	}
	shared.Start(ctx.Done())
	close(started)
	for _, run := range runs {
		go run(ctx, workers)
	}
	return nil
}

func startGarbageCollector(ctx context.Context, client kubernetes.Interface, meta metadata.Interface, shared informers.SharedInformerFactory, started <-chan struct{}) error {
	cached := memory.NewMemCacheClient(client.Discovery())
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(cached)
	factory := informerfactory.NewInformerFactory(shared, metadatainformer.NewSharedInformerFactory(meta, resync))
	ignored := map[schema.GroupResource]struct{}{{Resource: "events"}: {}, {Group: "events.k8s.io", Resource: "events"}: {}}
	gc, err := garbagecollector.NewGarbageCollector(ctx, client, meta, mapper, ignored, factory, started)
	if err != nil {
		return err
	}
	go gc.Run(ctx, workers, time.Minute)
	go gc.Sync(ctx, client.Discovery(), mapperResync)
	return nil
}
