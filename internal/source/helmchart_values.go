package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build/decrypt"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Trees returns the files of a source.
type Trees func(ctx context.Context, kind string, name types.NamespacedName) (*artifact.Tree, error)

// valuesFile is a values file of another source than the chart.
type valuesFile struct {
	text       string // as in the spec: KIND://NAME/PATH
	kind, name string
	path       string
}

// filesOfOthers returns the values files of a HelmChart that other sources have.
func filesOfOthers(obj *sourcev1.HelmChart) (files []valuesFile) {
	for _, text := range valuesFiles(obj) {
		kind, rest, found := strings.Cut(text, "://")
		if !found {
			continue
		}
		name, file, _ := strings.Cut(rest, "/")
		files = append(files, valuesFile{text: text, kind: kind, name: name,
			path: strings.TrimPrefix(path.Clean("/"+file), "/")})
	}
	return files
}

// ref returns the source of a file, for edges.
func (f valuesFile) ref(namespace string) reconcile.Ref {
	return reconcile.RefTo(schema.GroupKind{Group: sourcev1.GroupVersion.Group, Kind: f.kind}, namespace, f.name)
}

// addValuesFiles reads the values files of other sources. Their content is part of the version of the chart: each
// change makes another package.
func (r *HelmChartRevision) addValuesFiles(ctx context.Context, obj *sourcev1.HelmChart, trees Trees) error {
	others := filesOfOthers(obj)
	if len(others) == 0 {
		return nil
	}
	r.files = map[string][]byte{}
	digest := sha256.New()
	for _, f := range others {
		content, err := f.read(ctx, obj, trees)
		if err != nil {
			return err
		}
		if content != nil {
			r.files[f.text] = content
		}
		fmt.Fprintf(digest, "%d %t %s", len(content), content == nil, content)
	}
	r.metadata += "." + hex.EncodeToString(digest.Sum(nil))[:12]
	return nil
}

// read returns the content of the file. It is nil if the file may be missing, and is.
func (f valuesFile) read(ctx context.Context, obj *sourcev1.HelmChart, trees Trees) ([]byte, error) {
	failed := func(format string, args ...any) *fault.Fault {
		return fault.New(sourcev1.ValuesFilesErrorReason, "values file '%s': %s", f.text, fmt.Sprintf(format, args...))
	}
	switch f.kind {
	case sourcev1.GitRepositoryKind, sourcev1.OCIRepositoryKind, sourcev1.BucketKind, sourcev1.ExternalArtifactKind:
	default:
		return nil, failed("kind '%s' is not supported", f.kind).
			WithHint("Write it as GitRepository://NAME/PATH; also OCIRepository, Bucket or ExternalArtifact").Final()
	}
	tree, err := trees(ctx, f.kind, types.NamespacedName{Namespace: obj.Namespace, Name: f.name})
	if err != nil {
		return nil, err
	}
	content, err := tree.ReadFile(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && obj.Spec.IgnoreMissingValuesFiles:
		return nil, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, failed("the artifact has no such file").
			WithHint("Correct spec.valuesFiles, or set spec.ignoreMissingValuesFiles to skip missing files")
	case err != nil:
		return nil, failed("it cannot be read").Because(err)
	case decrypt.IsEncrypted(f.path, content):
		return nil, failed("it is encrypted with SOPS, and the package of a chart is not").
			WithHint("Use spec.valuesFrom and spec.decryption of the HelmRelease").Final()
	}
	return content, nil
}

// tree returns the files of a source in the cluster.
func (h *HelmChart) tree(ctx context.Context, kind string, name types.NamespacedName) (*artifact.Tree, error) {
	source := sourcev1.NewSource(kind)
	err := h.Objects.Get(ctx, name, source)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fault.New(sourcev1.SourceUnavailableReason, "%s '%s' not found", kind, name).
			WithHint("Create it, or correct spec.valuesFiles")
	case err != nil:
		return nil, err
	case source.GetArtifact() == nil:
		return nil, reconcile.WaitingFor(noArtifact(kind, name.Namespace, name.Name))
	}
	key := artifact.Key{Kind: kind, Namespace: name.Namespace, Name: name.Name}
	return h.Artifacts.Fetch(ctx, key, *source.GetArtifact())
}
