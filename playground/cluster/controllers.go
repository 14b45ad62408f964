package cluster

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/cronjob"
	"k8s.io/kubernetes/pkg/controller/daemon"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/disruption"
	"k8s.io/kubernetes/pkg/controller/endpoint"
	"k8s.io/kubernetes/pkg/controller/endpointslice"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/replication"
	"k8s.io/kubernetes/pkg/controller/resourcequota"
	accounts "k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/controller/statefulset"
	"k8s.io/kubernetes/pkg/controller/ttlafterfinished"
	"k8s.io/kubernetes/pkg/controller/volume/pvcprotection"
	"k8s.io/kubernetes/pkg/controller/volume/pvprotection"
	quotainstall "k8s.io/kubernetes/pkg/quota/v1/install"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"k8s.io/apiserver/pkg/quota/v1/generic"
)

const (
	workers   = 4
	burst     = 500 // objects that a controller makes at once
	perSlice  = 100 // endpoints
	resync    = 10 * time.Minute
	newKinds  = 2 * time.Second // until garbage collection and quotas know a kind that was added
	jobBatch  = 100 * time.Millisecond
	podRetry  = time.Second // after a pod of a Job failed
	dsBackoff = 15 * time.Minute
)

// manager is what the controllers have in common.
type manager struct {
	config  *rest.Config
	client  kubernetes.Interface
	meta    metadata.Interface
	mapper  meta.ResettableRESTMapper
	shared  informers.SharedInformerFactory
	any     informerfactory.InformerFactory // for resources that shared has no type for
	started chan struct{}                   // closed once shared runs
	runs    []func(context.Context)
	errs    []error
}

// startControllers runs the real controllers of Kubernetes that a delivery is seen through, until the context ends.
func startControllers(ctx context.Context, cfg *rest.Config, c certs, etcd *etcdServer) error {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	metadataClient, err := metadata.NewForConfig(cfg)
	if err != nil {
		return err
	}
	shared := informers.NewSharedInformerFactory(client, resync)
	m := &manager{
		config: cfg, client: client, meta: metadataClient, shared: shared,
		mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery())),
		any: informerfactory.NewInformerFactory(shared,
			metadatainformer.NewSharedInformerFactory(metadataClient, resync)),
		started: make(chan struct{}),
	}
	m.workloads(ctx)
	m.networkAndStorage(ctx)
	m.serviceAccounts(ctx, c)
	m.disruptions(ctx)
	m.quotas(ctx)
	m.garbage(ctx)
	m.errs = append(m.errs, startNamespaces(ctx, client, metadataClient, shared, etcd))
	if err := errors.Join(m.errs...); err != nil {
		return err
	}
	shared.Start(ctx.Done())
	m.any.Start(ctx.Done())
	close(m.started)
	for _, run := range m.runs {
		go run(ctx)
	}
	return nil
}

// add takes a controller as its constructor returned it.
func (m *manager) add(c interface{ Run(context.Context, int) }, err error) {
	m.errs = append(m.errs, err)
	m.runs = append(m.runs, func(ctx context.Context) { c.Run(ctx, workers) })
}

func (m *manager) workloads(ctx context.Context) {
	job.SyncJobBatchPeriod, job.DefaultJobPodFailureBackOff = jobBatch, podRetry
	core, apps, batch := m.shared.Core().V1(), m.shared.Apps().V1(), m.shared.Batch().V1()
	m.add(replicaset.NewReplicaSetController(ctx, apps.ReplicaSets(), core.Pods(), m.client, burst), nil)
	m.add(replication.NewReplicationManager(ctx, core.Pods(), core.ReplicationControllers(), m.client, burst), nil)
	m.add(statefulset.NewStatefulSetController(ctx, core.Pods(), apps.StatefulSets(), core.PersistentVolumeClaims(),
		apps.ControllerRevisions(), m.client), nil)
	m.add(deployment.NewDeploymentController(ctx, apps.Deployments(), apps.ReplicaSets(), core.Pods(), m.client))
	m.add(daemon.NewDaemonSetsController(ctx, apps.DaemonSets(), apps.ControllerRevisions(), core.Pods(), core.Nodes(),
		m.client,
		flowcontrol.NewBackOff(time.Second, dsBackoff)))
	// nil: pods are not scheduled in groups
	m.add(job.NewController(ctx, m.client, core.Pods(), batch.Jobs(), nil, nil))
	m.add(cronjob.NewControllerV2(ctx, batch.Jobs(), batch.CronJobs(), m.client))
	m.add(ttlafterfinished.New(ctx, batch.Jobs(), m.client), nil)
}

func (m *manager) networkAndStorage(ctx context.Context) {
	logger, core := klog.FromContext(ctx), m.shared.Core().V1()
	m.add(endpoint.NewEndpointController(ctx, core.Pods(), core.Services(), core.Endpoints(), m.client, 0), nil)
	m.add(endpointslice.NewController(ctx, core.Pods(), core.Services(), core.Nodes(), m.shared.Discovery().V1().
		EndpointSlices(), perSlice, m.client, 0), nil)
	m.add(pvcprotection.NewPVCProtectionController(logger, core.PersistentVolumeClaims(), core.Pods(), m.client))
	m.add(pvprotection.NewPVProtectionController(logger, core.PersistentVolumes(), m.client))
}

func (m *manager) serviceAccounts(ctx context.Context, c certs) {
	logger, core := klog.FromContext(ctx), m.shared.Core().V1()
	m.add(accounts.NewServiceAccountsController(logger, core.ServiceAccounts(), core.Namespaces(), m.client,
		accounts.DefaultServiceAccountsControllerOptions()))
	m.add(rootcacertpublisher.NewPublisher(core.ConfigMaps(), core.Namespaces(), m.client, c.ca))
	m.add(clusterroleaggregation.NewClusterRoleAggregation(m.shared.Rbac().V1().ClusterRoles(), m.client.RbacV1()), nil)
	key, err := keyutil.PrivateKeyFromFile(c.file("service-account.key"))
	if err != nil {
		m.errs = append(m.errs, err)
		return
	}
	tokens, err := serviceaccount.JWTTokenGenerator(serviceaccount.LegacyIssuer, key)
	if err != nil {
		m.errs = append(m.errs, err)
		return
	}
	m.add(accounts.NewTokensController(logger, core.ServiceAccounts(), core.Secrets(), m.client,
		accounts.TokensControllerOptions{TokenGenerator: tokens, RootCA: c.ca}))
}

func (m *manager) disruptions(ctx context.Context) {
	resolver := scale.NewDiscoveryScaleKindResolver(m.client.Discovery())
	scales, err := scale.NewForConfig(m.config, m.mapper, dynamic.LegacyAPIPathResolverFunc, resolver)
	if err != nil {
		m.errs = append(m.errs, err)
		return
	}
	core, apps := m.shared.Core().V1(), m.shared.Apps().V1()
	m.add(disruption.NewDisruptionController(ctx, core.Pods(), m.shared.Policy().V1().PodDisruptionBudgets(),
		core.ReplicationControllers(), apps.ReplicaSets(), apps.Deployments(), apps.StatefulSets(),
		m.client, m.mapper, scales, m.client.Discovery()), nil)
}

func (m *manager) quotas(ctx context.Context) {
	config, err := quotainstall.NewQuotaConfigurationForControllers(
		generic.ListerFuncForResourceFunc(m.shared.ForResource), m.shared)
	if err != nil {
		m.errs = append(m.errs, err)
		return
	}
	kinds := m.client.Discovery().ServerPreferredNamespacedResources
	c, err := resourcequota.NewController(ctx, &resourcequota.ControllerOptions{
		QuotaClient:               m.client.CoreV1(),
		ResourceQuotaInformer:     m.shared.Core().V1().ResourceQuotas(),
		ResyncPeriod:              controller.StaticResyncPeriodFunc(resync),
		InformerFactory:           m.any,
		ReplenishmentResyncPeriod: controller.StaticResyncPeriodFunc(resync),
		DiscoveryFunc:             kinds,
		IgnoredResourcesFunc:      config.IgnoredResources,
		InformersStarted:          m.started,
		Registry:                  generic.NewRegistry(config.Evaluators()),
		UpdateFilter:              quotainstall.DefaultUpdateFilter(),
	})
	m.add(c, err)
	m.runs = append(m.runs, func(ctx context.Context) { c.Sync(ctx, kinds, newKinds) })
}

func (m *manager) garbage(ctx context.Context) {
	ignored := map[schema.GroupResource]struct{}{{Resource: "events"}: {},
		{Group: "events.k8s.io", Resource: "events"}: {}}
	gc, err := garbagecollector.NewGarbageCollector(ctx, m.client, m.meta, m.mapper, ignored, m.any, m.started)
	m.errs = append(m.errs, err)
	m.runs = append(m.runs,
		func(ctx context.Context) { gc.Run(ctx, workers, time.Minute) },
		func(ctx context.Context) { gc.Sync(ctx, m.client.Discovery(), newKinds) })
}
