package kind

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	imagev1alpha1 "github.com/sluice-gitops/sluice/api/image/v1alpha1"
	inputsv1 "github.com/sluice-gitops/sluice/api/inputs/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

var kinds = []*Kind{
	{
		Words: []string{"git", "gitrepository", "gitrepositories", "gitrepo"}, Plural: "git", Parent: "source",
		New:          func() reconcile.Object { return &sourcev1.GitRepository{} },
		NewList:      func() client.ObjectList { return &sourcev1.GitRepositoryList{} },
		Columns:      []Column{revision(artifactRevision), suspended},
		SetSuspended: func(o reconcile.Object, s bool) { o.(*sourcev1.GitRepository).Spec.Suspend = s },
		AlsoDeleted:  "its artifact",
	},
	{
		Words: []string{"oci", "ocirepository", "ocirepositories", "ocirepo"}, Plural: "oci", Parent: "source",
		New:          func() reconcile.Object { return &sourcev1.OCIRepository{} },
		NewList:      func() client.ObjectList { return &sourcev1.OCIRepositoryList{} },
		Columns:      []Column{revision(artifactRevision), suspended},
		SetSuspended: func(o reconcile.Object, s bool) { o.(*sourcev1.OCIRepository).Spec.Suspend = s },
		AlsoDeleted:  "its artifact",
	},
	{
		Words: []string{"helm", "helmrepository", "helmrepositories", "helmrepo"}, Plural: "helm", Parent: "source",
		New:          func() reconcile.Object { return &sourcev1.HelmRepository{} },
		NewList:      func() client.ObjectList { return &sourcev1.HelmRepositoryList{} },
		Columns:      []Column{revision(artifactRevision), suspended},
		SetSuspended: func(o reconcile.Object, s bool) { o.(*sourcev1.HelmRepository).Spec.Suspend = s },
		AlsoDeleted:  "its artifact",
	},
	{
		Words: []string{"chart", "helmchart", "helmcharts", "hc"}, Plural: "chart", Parent: "source",
		New:          func() reconcile.Object { return &sourcev1.HelmChart{} },
		NewList:      func() client.ObjectList { return &sourcev1.HelmChartList{} },
		Columns:      []Column{revision(artifactRevision), suspended},
		SetSuspended: func(o reconcile.Object, s bool) { o.(*sourcev1.HelmChart).Spec.Suspend = s },
		HasSource:    true,
		AlsoDeleted:  "its artifact",
	},
	{
		Words: []string{"bucket", "buckets"}, Plural: "bucket", Parent: "source",
		New:          func() reconcile.Object { return &sourcev1.Bucket{} },
		NewList:      func() client.ObjectList { return &sourcev1.BucketList{} },
		Columns:      []Column{revision(artifactRevision), suspended},
		SetSuspended: func(o reconcile.Object, s bool) { o.(*sourcev1.Bucket).Spec.Suspend = s },
		AlsoDeleted:  "its artifact",
	},
	{
		Words: []string{"external", "externalartifact", "externalartifacts", "ea"}, Plural: "external",
		Parent:    "source",
		New:       func() reconcile.Object { return &sourcev1.ExternalArtifact{} },
		NewList:   func() client.ObjectList { return &sourcev1.ExternalArtifactList{} },
		Columns:   []Column{revision(artifactRevision), {Header: "MADE BY", Value: madeBy, Detail: true}},
		ReadOnly:  true,
		HasSource: true,
	},
	{
		Words:  []string{"generator", "generators", "artifactgenerator", "artifactgenerators", "ag"},
		Plural: "generators", Parent: "artifact",
		New:          func() reconcile.Object { return &extensionsv1beta1.ArtifactGenerator{} },
		NewList:      func() client.ObjectList { return &extensionsv1beta1.ArtifactGeneratorList{} },
		Columns:      []Column{suspended},
		SetSuspended: suspendBy(extensionsv1beta1.ReconcileAnnotation),
		HasInventory: true,
		AlsoDeleted:  "the ExternalArtifacts that it made",
	},
	{
		Words: []string{"kustomization", "kustomizations", "ks"}, Plural: "kustomizations",
		New:          func() reconcile.Object { return &kustomizev1.Kustomization{} },
		NewList:      func() client.ObjectList { return &kustomizev1.KustomizationList{} },
		Columns:      []Column{revision(appliedRevision), suspended},
		SetSuspended: func(o reconcile.Object, s bool) { o.(*kustomizev1.Kustomization).Spec.Suspend = s },
		HasSource:    true,
		HasInventory: true,
		AlsoDeleted:  "what it applied, if spec.prune is set",
	},
	{
		Words: []string{"helmrelease", "helmreleases", "hr"}, Plural: "helmreleases",
		New:          func() reconcile.Object { return &helmv2.HelmRelease{} },
		NewList:      func() client.ObjectList { return &helmv2.HelmReleaseList{} },
		Columns:      []Column{revision(releasedRevision), suspended},
		SetSuspended: func(o reconcile.Object, s bool) { o.(*helmv2.HelmRelease).Spec.Suspend = s },
		HasSource:    true,
		HasInventory: true,
		AlsoDeleted:  "its Helm release and the objects of that",
	},
	{
		Words: []string{"resourceset", "resourcesets", "rset"}, Plural: "resourcesets",
		New:          func() reconcile.Object { return &controlplanev1.ResourceSet{} },
		NewList:      func() client.ObjectList { return &controlplanev1.ResourceSetList{} },
		Columns:      []Column{revision(setRevision), {Header: "OBJECTS", Value: objectCount, Detail: true}, suspended},
		SetSuspended: suspendBy(controlplanev1.ReconcileAnnotation),
		HasInventory: true,
		AlsoDeleted:  "the objects that it applied",
	},
	{
		Words: []string{"input-provider", "input-providers", "resourcesetinputprovider",
			"resourcesetinputproviders", "rsip"},
		Plural: "input-providers",
		New:    func() reconcile.Object { return &controlplanev1.ResourceSetInputProvider{} },
		NewList: func() client.ObjectList {
			return &controlplanev1.ResourceSetInputProviderList{}
		},
		Columns: []Column{{Header: "TYPE", Value: inputType, Detail: true},
			{Header: "INPUTS", Value: inputCount, Detail: true}, suspended},
		SetSuspended: suspendBy(controlplanev1.ReconcileAnnotation),
		AlsoDeleted:  "its inputs; ResourceSets that name it fail",
	},
	{
		Words: []string{"cluster-input-provider", "cluster-input-providers", "clusterinputprovider",
			"clusterinputproviders", "cip"},
		Plural: "cluster-input-providers",
		New:    func() reconcile.Object { return &inputsv1.ClusterInputProvider{} },
		NewList: func() client.ObjectList {
			return &inputsv1.ClusterInputProviderList{}
		},
		Columns:      []Column{{Header: "CLUSTERS", Value: clusterCount, Detail: true}, suspended},
		SetSuspended: func(o reconcile.Object, s bool) { o.(*inputsv1.ClusterInputProvider).Spec.Suspend = s },
		AlsoDeleted:  "its inputs; ResourceSets that name it fail",
	},
	{
		Words: []string{"receiver", "receivers"}, Plural: "receivers",
		New:          func() reconcile.Object { return &notificationv1.Receiver{} },
		NewList:      func() client.ObjectList { return &notificationv1.ReceiverList{} },
		Columns:      []Column{suspended},
		SetSuspended: func(o reconcile.Object, s bool) { o.(*notificationv1.Receiver).Spec.Suspend = s },
		AlsoDeleted:  "its webhook",
	},
	{
		Words:  []string{"repository", "repositories", "imagerepository", "imagerepositories", "imgrepo"},
		Plural: "repository", Parent: "image",
		New:     func() reconcile.Object { return &imagev1.ImageRepository{} },
		NewList: func() client.ObjectList { return &imagev1.ImageRepositoryList{} },
		Columns: []Column{{Header: "TAGS", Value: tagCount}, {Header: "LAST SCAN", Value: lastScan, Detail: true},
			suspended},
		SetSuspended: func(o reconcile.Object, s bool) { o.(*imagev1.ImageRepository).Spec.Suspend = s },
		AlsoDeleted:  "the tags that it scanned",
	},
	{
		Words: []string{"policy", "policies", "imagepolicy", "imagepolicies", "imgpol"}, Plural: "policy",
		Parent:  "image",
		New:     func() reconcile.Object { return &imagev1.ImagePolicy{} },
		NewList: func() client.ObjectList { return &imagev1.ImagePolicyList{} },
		Columns: []Column{{Header: "IMAGE", Value: latestImage, Detail: true}, {Header: "TAG", Value: latestTag},
			suspended},
		SetSuspended: func(o reconcile.Object, s bool) { o.(*imagev1.ImagePolicy).Spec.Suspend = s },
		AlsoDeleted:  "its selected image; files in git keep their images",
	},
	{
		Words:  []string{"update", "updates", "imageupdateautomation", "imageupdateautomations", "imgupd"},
		Plural: "update", Parent: "image",
		New:          func() reconcile.Object { return &imagev1.ImageUpdateAutomation{} },
		NewList:      func() client.ObjectList { return &imagev1.ImageUpdateAutomationList{} },
		Columns:      []Column{{Header: "LAST RUN", Value: lastRun}, suspended},
		SetSuspended: func(o reconcile.Object, s bool) { o.(*imagev1.ImageUpdateAutomation).Spec.Suspend = s },
		HasSource:    true,
		AlsoDeleted:  "nothing else; its commits stay",
	},
	{
		Words: []string{"release", "releases", "imageupdatejob", "imageupdatejobs", "imgjob"}, Plural: "releases",
		Parent:      "image",
		New:         func() reconcile.Object { return &imagev1alpha1.ImageUpdateJob{} },
		NewList:     func() client.ObjectList { return &imagev1alpha1.ImageUpdateJobList{} },
		Columns:     []Column{{Header: "COMMIT", Value: jobCommit}, {Header: "AUTHOR", Value: jobAuthor}},
		RunsOnce:    true,
		AlsoDeleted: "its record; the commit and its git note stay",
	},
	{
		Words: []string{"alert-provider", "alert-providers", "provider", "providers"}, Plural: "alert-providers",
		New:          func() reconcile.Object { return &notificationv1.Provider{} },
		NewList:      func() client.ObjectList { return &notificationv1.ProviderList{} },
		Columns:      []Column{{Header: "TYPE", Value: providerType}, suspended},
		SetSuspended: func(o reconcile.Object, s bool) { o.(*notificationv1.Provider).Spec.Suspend = s },
		AlsoDeleted:  "its undelivered events",
	},
	{
		Words: []string{"alert", "alerts"}, Plural: "alerts",
		New:          func() reconcile.Object { return &notificationv1.Alert{} },
		NewList:      func() client.ObjectList { return &notificationv1.AlertList{} },
		Columns:      []Column{{Header: "PROVIDER", Value: alertProvider}, suspended},
		SetSuspended: func(o reconcile.Object, s bool) { o.(*notificationv1.Alert).Spec.Suspend = s },
		NoInterval:   true,
		AlsoDeleted:  "its event selection",
	},
	{
		Words: []string{"gate", "gates"}, Plural: "gates",
		New:             func() reconcile.Object { return &gatingv1.Gate{} },
		NewList:         func() client.ObjectList { return &gatingv1.GateList{} },
		Columns:         []Column{{Header: "OPENED", Value: gateState}, {Header: "WAITING", Value: waitingCount}},
		StatusCondition: gatingv1.OpenedCondition,
		AlsoDeleted:     "its history; objects that refer to it stay held",
	},
}
