package bootstrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/credentials/verify/cosign"
	"github.com/sluice-gitops/sluice/internal/source/ignore"
	"github.com/sluice-gitops/sluice/internal/source/oci"
)

// Artifact is an OCI artifact that the cluster manages itself from.
type Artifact struct {
	Repository *oci.Repository // with a login that may push
	URL, Tag   string
	// Dir is a directory whose files are pushed with the manifests, which are also written to it. If it is empty, the
	// files of the current artifact are kept.
	Dir      string
	Insecure bool
	CA       []byte            // of the registry; PEM
	Provider string            // of the cluster's login; generic has a Secret
	Login    map[string][]byte // data of the pull secret of the cluster; nil without one
	Signer   *cosign.Signer    // nil without a key
}

// spec returns the spec of the OCIRepository.
func (a *Artifact) spec(interval time.Duration, secret string) map[string]any {
	spec := map[string]any{"interval": interval.String(), "url": a.URL, "ref": map[string]any{"tag": a.Tag}}
	if a.Login != nil {
		spec["secretRef"] = map[string]any{"name": secret}
	}
	if a.Provider != sourcev1.ProviderGeneric {
		spec["provider"] = a.Provider
	}
	if a.Insecure {
		spec["insecure"] = true
	}
	if len(a.CA) > 0 {
		spec["certSecretRef"] = map[string]any{"name": caSecret(secret)}
	}
	if a.Signer != nil {
		spec["verify"] = map[string]any{"provider": "cosign", "secretRef": map[string]any{"name": keySecret(secret)}}
	}
	return spec
}

// keySecret returns the name of the Secret with the public key.
func keySecret(secret string) string { return secret + "-cosign" }

// caSecret returns the name of the Secret with the certificate of the registry.
func caSecret(secret string) string { return secret + "-ca" }

// source is the object that the cluster reads itself from.
type source interface {
	reconciled
	GetArtifact() *meta.Artifact
}

func (o *Options) sourceKind() string {
	if o.Artifact != nil {
		return sourcev1.OCIRepositoryKind
	}
	return sourcev1.GitRepositoryKind
}

func (o *Options) newSource() source {
	if o.Artifact != nil {
		return &sourcev1.OCIRepository{}
	}
	return &sourcev1.GitRepository{}
}

func urlOf(s source) string {
	switch s := s.(type) {
	case *sourcev1.OCIRepository:
		return s.Spec.URL
	case *sourcev1.GitRepository:
		return s.Spec.URL
	}
	return ""
}

// where names the place of the manifests in messages.
func (o *Options) where() string {
	if o.Artifact != nil {
		return fmt.Sprintf("artifact '%s:%s'", o.Artifact.URL, o.Artifact.Tag)
	}
	return fmt.Sprintf("branch '%s'", o.Branch)
}

// pushArtifact pushes the files with the manifests, unless the artifact has them already.
func (r *run) pushArtifact(ctx context.Context) error {
	a := r.Artifact
	r.syncURL = a.URL
	r.Output.Live("reading %s", r.where())
	current, revision, err := a.current(ctx)
	if err != nil {
		return err
	}
	files := current
	if a.Dir != "" {
		rules, err := ignore.New(nil)
		if err != nil {
			return err
		}
		if files, err = oci.ReadLocal(a.Dir, rules, false); err != nil {
			return fmt.Errorf("cannot read %s: %w", a.Dir, err)
		}
	}
	if err := r.allowRemoteBases(files); err != nil {
		return err
	}
	manifests, _, err := r.files(readerOf(files))
	if err != nil {
		return err
	}
	added := map[string]artifact.File{}
	for name, content := range manifests {
		added[name] = artifact.File{Mode: 0o644, Data: content}
	}
	own, err := artifact.NewMemory(added)
	if err != nil {
		return err
	}
	all, err := artifact.Compose(artifact.Layer{Tree: files, From: ".", To: "."},
		artifact.Layer{Tree: own, From: ".", To: "."})
	if err != nil {
		return err
	}
	if err := r.build(ctx, all); err != nil {
		return err
	}
	if a.Dir != "" { // else the next push of the directory would delete the controllers
		if err := oci.WriteLocal(a.Dir, own); err != nil {
			return fmt.Errorf("cannot write to %s: %w", a.Dir, err)
		}
	}
	return r.pushTree(ctx, current, all, revision)
}

// current returns the files and the revision of the current artifact, or no files and nil.
func (a *Artifact) current(ctx context.Context) (*artifact.Tree, *oci.Revision, error) {
	revision, err := a.Repository.Resolve(ctx, oci.Reference{Tag: a.Tag})
	var answer *transport.Error
	if errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound {
		empty, err := artifact.NewMemory(nil)
		return empty, nil, err
	}
	if err != nil {
		return nil, nil, err
	}
	image, err := a.Repository.Pull(ctx, revision.Digest)
	if err != nil {
		return nil, nil, err
	}
	layer, err := image.Layer("")
	if err != nil {
		return nil, nil, err
	}
	noExclusions := ""
	tree, err := layer.Tree(ctx, &noExclusions)
	return tree, &revision, err
}

// pushTree pushes a tree if it differs from the current one, and signs what the tag points to if it is not signed.
func (r *run) pushTree(ctx context.Context, current, all *artifact.Tree, revision *oci.Revision) error {
	var before, after bytes.Buffer
	if err := errors.Join(artifact.WriteArchive(ctx, &before, current),
		artifact.WriteArchive(ctx, &after, all)); err != nil {
		return err
	}
	a := r.Artifact
	if revision != nil && bytes.Equal(before.Bytes(), after.Bytes()) {
		r.Output.Done("the manifests in '%s' of %s are up to date", r.dir(), r.where())
		return r.sign(ctx, *revision)
	}
	r.Output.Live("pushing %s", r.where())
	digest, err := a.Repository.Push(ctx, a.Tag, after.Bytes(), map[string]string{
		oci.CreatedAnnotation: time.Now().UTC().Format(time.RFC3339), oci.SourceAnnotation: "sluice bootstrap",
		oci.RevisionAnnotation: a.Tag})
	if err != nil {
		return err
	}
	r.Output.Done("pushed the manifests to '%s' of %s", r.dir(), r.where())
	return r.sign(ctx, oci.Revision{Digest: digest})
}

// sign signs a revision, unless it has a signature of the key.
func (r *run) sign(ctx context.Context, revision oci.Revision) error {
	a := r.Artifact
	if a.Signer == nil {
		return nil
	}
	at := a.Repository.At(revision.Digest)
	keys, err := cosign.Keys(map[string][]byte{"cosign.pub": a.Signer.Public})
	if err != nil {
		return err
	}
	if _, err := keys.Verify(ctx, at, a.Repository.Options()...); err == nil {
		return nil
	}
	if err := a.Signer.Sign(ctx, at, a.Repository.WriteOptions()...); err != nil {
		return failed("cannot sign %s", r.where()).Because(err)
	}
	r.Output.Done("signed %s", at.Name())
	return nil
}

// readerOf returns the reader of a tree.
func readerOf(t *artifact.Tree) reader {
	return func(name string) ([]byte, error) {
		info, err := t.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			return nil, errNotRegular
		}
		return t.ReadFile(name)
	}
}

// storeArtifactSecrets stores the login of the cluster and the public key.
func (r *run) storeArtifactSecrets(ctx context.Context) error {
	a := r.Artifact
	if a.Login != nil {
		if err := r.putTyped(ctx, r.SecretName, corev1.SecretTypeDockerConfigJson, a.Login); err != nil {
			return err
		}
	}
	if len(a.CA) > 0 {
		if err := r.putTyped(ctx, caSecret(r.SecretName), corev1.SecretTypeOpaque,
			map[string][]byte{"ca.crt": a.CA}); err != nil {
			return err
		}
	}
	if a.Signer == nil {
		return nil
	}
	return r.putTyped(ctx, keySecret(r.SecretName), corev1.SecretTypeOpaque,
		map[string][]byte{"cosign.pub": a.Signer.Public})
}

// putTyped creates a Secret, or replaces its data. The type of a Secret cannot be changed, so that one of another type
// is created again.
func (r *run) putTyped(ctx context.Context, name string, kind corev1.SecretType, data map[string][]byte) error {
	want := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: name}, Type: kind, Data: data}
	what := fmt.Sprintf("Secret '%s'", keyOf(want))
	live := &corev1.Secret{}
	err := r.Client.Get(ctx, keyOf(want), live)
	if client.IgnoreNotFound(err) != nil {
		return clusterFault("cannot get "+what, err)
	}
	switch {
	case err == nil && live.Type == kind && meta.Equal(live.Data, data):
		return nil
	case err == nil && live.Type == kind:
		live.Data = data
		err = r.Client.Update(ctx, live)
	case err == nil:
		if err = r.Client.Delete(ctx, live); err == nil {
			err = r.Client.Create(ctx, want)
		}
	default:
		err = r.Client.Create(ctx, want)
	}
	if err != nil {
		return clusterFault("cannot write "+what, err)
	}
	r.Output.Done("%s written", what)
	return nil
}
