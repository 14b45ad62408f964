package review

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/cluster/risk"
	"github.com/sluice-gitops/sluice/internal/githost"
	"github.com/sluice-gitops/sluice/internal/review/preview"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

const (
	maxText  = 200     // characters of texts of hosts
	maxError = 4 << 10 // bytes
)

func line(text string) string { return excerpt.Line(text, maxText) }

// shorten returns an error as it is shown.
func shorten(err error) string { return excerpt.Bytes(redact.Text(err.Error()), maxError) }

// compute previews a pull request. Those of strangers are rendered without the cluster, keys and credentials.
func (s *Service) compute(ctx context.Context, t task, listed githost.ListedRequest, pull githost.Pull) (*Detail,
	error) {
	c := t.of.config
	repository, done, err := t.of.mirror.Fetch(ctx, "refs/heads/"+pull.Base, pull.Ref)
	if err != nil {
		return nil, err
	}
	defer done()
	repository.Cache = s.caches[t.inputs.trusted]
	o := preview.Options{Sources: c.Sources, URLs: []string{c.URL, c.repository.CloneURL()}, Branch: pull.Base,
		Strict: true, Keyless: !t.inputs.trusted, Cache: repository.Cache}
	if err := o.Compare(repository, "refs/heads/"+pull.Base, pull.Head, nil); err != nil {
		return nil, err
	}
	o.From.Name, o.To.Name = line(pull.Base), line(listed.Branch)
	if t.inputs.trusted {
		o.Cluster = s.cluster
	}
	if o.Cluster == nil {
		if o.Roots, err = s.roots(ctx, o); err != nil {
			return nil, err
		}
	}
	result, err := preview.Run(ctx, o)
	if err != nil {
		return nil, err
	}
	d := &Detail{Preview: result}
	if o.Cluster != nil {
		decisions, err := preview.DecisionsAbout(ctx, o.Cluster.Client, result, s.Clock.Now())
		if err != nil {
			return nil, err
		}
		d.Gates = slices.DeleteFunc(decisions.Objects, func(a *preview.AskingObject) bool { return a.Passes() })
		result.Notes = decisions.Notes
	}
	d.Images = imagesOf(result)
	s.registries.check(ctx, d.Images, t.inputs.trusted)
	d.Blast, d.Schema = blastOf(result), problemsOf(result)
	d.locate(c.repository, o.To, pull.Head)
	bound(result)
	d.Summary = summaryOf(d, c.failOn)
	return d, nil
}

// summaryOf counts what a review found.
func summaryOf(d *Detail, failOn risk.Level) Summary {
	r := d.Preview
	out := Summary{Risk: r.Level, Text: r.Summary(), Counts: r.Count(), Files: len(r.Files), Offline: r.Offline,
		Applications: len(d.Blast.Applications), Clusters: len(d.Blast.Clusters), Namespaces: len(d.Blast.Namespaces),
		Held: len(d.Gates), SchemaErrors: len(d.Schema),
		Passes: r.Failed() == 0 && (failOn == risk.None || r.Level < failOn)}
	for _, i := range d.Images {
		if i.Exists != nil && !*i.Exists {
			out.MissingImages++
		}
	}
	return out
}

const (
	maxLocated     = 500     // files in which objects are looked for
	maxDeclaration = 1 << 20 // bytes of a file
)

// locate finds where the changed files declare objects.
func (d *Detail) locate(r githost.Repository, to *preview.Snapshot, commit string) {
	d.Places, d.Pages = map[string]string{}, map[string]string{}
	for n, name := range d.Preview.Files {
		content, exists, err := to.File(name, maxDeclaration)
		if err != nil || !exists || n >= maxNamed {
			continue
		}
		d.Pages[name] = r.FileURL(commit, name, 0)
		if ext := path.Ext(name); n >= maxLocated || ext != ".yaml" && ext != ".yml" {
			continue
		}
		for object, at := range placesOf(string(content)) {
			if d.Places[object] == "" && len(d.Places) < maxNamed {
				d.Places[object] = r.FileURL(commit, name, at)
			}
		}
	}
}

// roots returns the Kustomizations of the cluster that apply a repository, for renders without the cluster.
func (s *Service) roots(ctx context.Context, o preview.Options) (out []*kustomizev1.Kustomization, err error) {
	if s.cluster == nil {
		return nil, nil
	}
	var sources sourcev1.GitRepositoryList
	if err := s.Client.List(ctx, &sources); err != nil {
		return nil, err
	}
	holds := map[string]bool{}
	for n := range sources.Items {
		g := &sources.Items[n]
		holds[g.Namespace+"/"+g.Name] = slices.ContainsFunc(o.URLs,
			func(u string) bool { return preview.SameRepository(u, g.Spec.URL) })
	}
	var all kustomizev1.KustomizationList
	if err := s.Client.List(ctx, &all); err != nil {
		return nil, err
	}
	for n := range all.Items {
		k := &all.Items[n]
		ref := k.Spec.SourceRef
		if ref.Kind == sourcev1.GitRepositoryKind && holds[cmp.Or(ref.Namespace, k.Namespace)+"/"+ref.Name] {
			out = append(out, skeleton(k))
		}
	}
	return out, nil
}

// skeleton returns a Kustomization without what only the cluster knows, such as variables and patches: what a stranger
// declares would show their values.
func skeleton(k *kustomizev1.Kustomization) *kustomizev1.Kustomization {
	return &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name},
		Spec: kustomizev1.KustomizationSpec{Path: k.Spec.Path, Components: k.Spec.Components, Prune: k.Spec.Prune,
			SourceRef: k.Spec.SourceRef, TargetNamespace: k.Spec.TargetNamespace, Suspend: k.Spec.Suspend,
			KubeConfig: k.Spec.KubeConfig}}
}

// stateKinds are the kinds whose objects decide what a change does, besides the objects that it changes.
var stateKinds = []schema.GroupVersionKind{
	kustomizev1.GroupVersion.WithKind(kustomizev1.KustomizationKind + "List"),
	helmv2.GroupVersion.WithKind(helmv2.HelmReleaseKind + "List"),
	sourcev1.GroupVersion.WithKind(sourcev1.GitRepositoryKind + "List"),
	gatingv1.GroupVersion.WithKind("GateList"),
}

// clusterState returns a digest of what decides about changes in the cluster: the specs of what deploys, and gates.
func (s *Service) clusterState(ctx context.Context) (string, error) {
	if s.cluster == nil {
		return "", nil
	}
	digest := sha256.New()
	for _, kind := range stateKinds {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind)
		if err := s.Client.List(ctx, list); apimeta.IsNoMatchError(err) {
			continue
		} else if err != nil {
			return "", err
		}
		slices.SortFunc(list.Items, func(a, b metav1.PartialObjectMetadata) int { return cmp.Compare(a.UID, b.UID) })
		for n := range list.Items {
			o := &list.Items[n]
			version := fmt.Sprint(o.Generation)
			if kind.Group == gatingv1.GroupVersion.Group { // whose state is in the status
				version = o.ResourceVersion
			}
			fmt.Fprintln(digest, o.UID, version)
		}
	}
	return hex.EncodeToString(digest.Sum(nil)), nil
}
