package storage

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"io"
	"slices"
	"strconv"

	release "helm.sh/helm/v4/pkg/release/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	ri "helm.sh/helm/v4/pkg/release"
)

// Bounds of what is decompressed. Everybody who may create Secrets can create some that look like releases.
const (
	maxRelease  = 32 << 20 // bytes of a release
	maxReleases = 96 << 20 // bytes of all releases of a name
	dataKey     = "release"
)

// bounded reads Secrets without releases that are too large: Helm would decompress them without a limit. Such a Secret
// counts as one that holds no release.
type bounded struct{ typedcorev1.SecretInterface }

// Get implements [typedcorev1.SecretInterface].
func (b bounded) Get(ctx context.Context, name string, o metav1.GetOptions) (*corev1.Secret, error) {
	s, err := b.SecretInterface.Get(ctx, name, o)
	if err == nil {
		left := int64(maxRelease)
		limit(s, &left)
	}
	return s, err
}

// List implements [typedcorev1.SecretInterface]. The newest releases come first.
func (b bounded) List(ctx context.Context, o metav1.ListOptions) (*corev1.SecretList, error) {
	list, err := b.SecretInterface.List(ctx, o)
	if err != nil {
		return list, err
	}
	slices.SortStableFunc(list.Items, func(a, b corev1.Secret) int { return versionOf(&b) - versionOf(&a) })
	left := int64(maxReleases)
	for i := range list.Items {
		limit(&list.Items[i], &left)
	}
	return list, nil
}

// versionOf returns the version of the release in a Secret; 0 if it has none.
func versionOf(s *corev1.Secret) int {
	v, _ := strconv.ParseUint(s.Labels["version"], 10, 31)
	return int(v)
}

// limit removes the release of a Secret if it is larger than what is left, and takes it from that otherwise.
func limit(s *corev1.Secret, left *int64) {
	size := sizeOf(s.Data[dataKey], min(maxRelease, *left))
	if size > min(maxRelease, *left) {
		delete(s.Data, dataKey)
		return
	}
	*left -= size
}

// sizeOf returns the decompressed size of a stored release. It stops soon after limit.
func sizeOf(data []byte, limit int64) int64 {
	z, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(data)))
	if err != nil {
		return int64(len(data)) // not compressed, or corrupt
	}
	n, _ := io.Copy(io.Discard, io.LimitReader(z, limit+1)) // Helm reports what is corrupt
	return n
}

// complete returns the releases that have what Helm and the controllers read without a check.
func complete(found []ri.Releaser) []ri.Releaser {
	return slices.DeleteFunc(found, func(r ri.Releaser) bool { return !isComplete(r) })
}

func isComplete(r ri.Releaser) bool {
	rel, ok := r.(*release.Release)
	return ok && rel != nil && rel.Info != nil && rel.Version > 0 && !slices.Contains(rel.Hooks, nil)
}
