package ui

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/githost"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/offline/localbuild"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/diff"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/redact"
	"github.com/sluice-gitops/sluice/internal/ui/view"
)

// declared is what git declares of the objects that an object applied.
type declared struct {
	revision string
	objects  map[apply.Ref]*unstructured.Unstructured
	known    *redact.Known // nil if nothing comes from Secrets
	// file returns the file that an object comes from; nil if objects have none.
	file       func(*unstructured.Unstructured) string
	repository string // URL
	commit     string // empty if it is not from git
}

// declaredBy returns what git declares of the objects that an object applied: the build of the revision that it
// applied, or the stored release. It reads with the rights of the user, and never decrypts.
func (s *Server) declaredBy(ctx context.Context, u *User, o reconcile.Object) (*declared, error) {
	switch o := o.(type) {
	case *kustomizev1.Kustomization:
		return s.declaredByKustomization(ctx, u, o)
	case *helmv2.HelmRelease:
		return declaredByRelease(ctx, u, o)
	}
	return nil, badRequest("only the objects of Kustomizations and HelmReleases are rendered again")
}

func declaredByRelease(ctx context.Context, u *User, hr *helmv2.HelmRelease) (*declared, error) {
	if len(hr.Status.History) == 0 {
		return nil, badRequest("nothing was released yet")
	}
	last := hr.Status.History[0]
	objects, err := storedObjects(ctx, u, hr, last.Version)
	return &declared{revision: fmt.Sprintf("%s, version %d", last.ChartVersion, last.Version), objects: objects}, err
}

func (s *Server) declaredByKustomization(ctx context.Context, u *User, ks *kustomizev1.Kustomization) (*declared,
	error) {
	if s.Artifacts == nil {
		return nil, badRequest("this server reads no artifacts")
	}
	ref := ks.Spec.SourceRef
	k := kind.ByName(ref.Kind)
	if k == nil {
		return nil, badRequest("its source has the unknown kind %q", excerpt.Bytes(ref.Kind, maxFieldText))
	}
	key := client.ObjectKey{Namespace: cmp.Or(ref.Namespace, ks.Namespace), Name: ref.Name}
	o := k.New()
	if err := u.Client.Get(ctx, key, o); err != nil {
		return nil, err
	}
	source, ok := o.(sourcev1.Source)
	if !ok || source.GetArtifact() == nil {
		return nil, badRequest("its source has no artifact")
	}
	a := *source.GetArtifact()
	if a.Revision != ks.Status.LastAppliedRevision {
		return nil, badRequest("its source has revision %s now, which is not applied",
			excerpt.Bytes(a.Revision, maxFieldText))
	}
	content, err := s.Artifacts.Open(ctx, artifact.Key{Kind: k.Name(), Namespace: key.Namespace, Name: key.Name}, a)
	if err != nil {
		return nil, err
	}
	defer content.Close() // only read
	tree, err := artifact.ReadArchive(ctx, content)
	if err != nil {
		return nil, err
	}
	builder := localbuild.New(localbuild.Options{Placeholders: redact.NewPlaceholders()}, u.Client, func(string) {})
	builder.UseSource(ks, tree)
	built, err := builder.BuildObject(ctx, ks.DeepCopy())
	if err != nil {
		return nil, err
	}
	d := &declared{revision: a.Revision, objects: map[apply.Ref]*unstructured.Unstructured{}, known: built.Known(),
		file: built.Origin}
	if repo, isGit := o.(*sourcev1.GitRepository); isGit {
		d.repository = view.Of(k, repo).URL
		if at := commitPattern.FindStringSubmatch(a.Revision); at != nil {
			d.commit = at[1]
		}
	}
	for _, o := range built.Objects {
		gvk := o.GroupVersionKind()
		d.objects[apply.Ref{Group: gvk.Group, Kind: gvk.Kind, Namespace: o.GetNamespace(), Name: o.GetName()}] = o
	}
	return d, nil
}

// of returns what git declares of an object; nil if that is not known.
func (d *declared) of(ref apply.Ref) *unstructured.Unstructured {
	if d == nil {
		return nil
	}
	ref.Version = ""
	if o := d.objects[ref]; o != nil {
		return o
	}
	ref.Namespace = "" // not in the manifest: that of the release, or the default one
	return d.objects[ref]
}

// fileOf returns the file that declares an object, and its page at the git host; empty if they are not known.
func (d *declared) fileOf(ref apply.Ref) (file, page string) {
	git := d.of(ref)
	if git == nil || d.file == nil {
		return "", ""
	}
	if file = d.file(git); file != "" && d.commit != "" {
		page = githost.FilePage(d.repository, d.commit, file)
	}
	return file, page
}

// addGit adds what git declares to the fields of an object that others set, and the fields that git declares and the
// cluster does not have. live is the object without what must not be shown.
func (d *declared) addGit(fields []foreignField, ref apply.Ref, live *unstructured.Unstructured) []foreignField {
	git := d.of(ref)
	if git == nil {
		return fields
	}
	git = git.DeepCopy()
	mask(git)
	for i, f := range fields {
		if text, found := valueAt(git.Object, f.at); found && d.shows(git, text) {
			fields[i].Git = excerpt.Bytes(text, maxFieldText)
		}
	}
	if git.GetKind() == "Secret" {
		return fields // stringData becomes data
	}
	for _, one := range diff.Objects(live, diff.Overlay(live, git)) {
		if one.Before != nil || isZero(one.After) || len(fields) == maxForeign {
			continue
		}
		text, err := json.Marshal(one.After)
		if err == nil && d.shows(git, string(text)) {
			fields = append(fields, foreignField{Path: excerpt.Bytes(one.Path, maxFieldText),
				Git: excerpt.Bytes(string(text), maxFieldText)})
		}
	}
	return fields
}

// shows reports whether a value of git may be shown: nothing of an object with values of Secrets, or with encrypted
// ones, is.
func (d *declared) shows(git *unstructured.Unstructured, text string) bool {
	return (d.known == nil || !d.known.Differing(git)) && !localbuild.HasMasked(text)
}

// isZero reports whether a value is one that the API server may drop.
func isZero(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, item := range v {
			if !isZero(item) {
				return false
			}
		}
		return true
	case []any:
		return !slices.ContainsFunc(v, func(item any) bool { return !isZero(item) })
	}
	return v == nil || v == "" || v == false || v == int64(0) || v == float64(0)
}
