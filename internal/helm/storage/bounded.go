package storage

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"io"
	"maps"
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
	maxStored   = 32 << 20 // bytes of all Secrets of a name, as they are stored
	valueBytes  = 64       // that each value of a release counts besides its text
	pageSize    = 10       // Secrets that are read at a time; each has at most 1 MiB
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

// List implements [typedcorev1.SecretInterface]. The newest releases come first. It reads few Secrets at a time, and
// keeps only what Helm reads of them.
func (b bounded) List(ctx context.Context, o metav1.ListOptions) (*corev1.SecretList, error) {
	all := &corev1.SecretList{}
	for o.Limit = pageSize; ; {
		page, err := b.SecretInterface.List(ctx, o)
		if err != nil {
			return page, err
		}
		for i := range page.Items {
			s := &page.Items[i]
			s.Annotations, s.ManagedFields = nil, nil
			maps.DeleteFunc(s.Data, func(key string, _ []byte) bool { return key != dataKey })
		}
		all.Items = append(all.Items, page.Items...)
		dropOld(all.Items)
		if o.Continue = page.Continue; o.Continue == "" {
			break
		}
	}
	left := int64(maxReleases)
	for i := range all.Items {
		limit(&all.Items[i], &left)
	}
	return all, nil
}

// dropOld sorts Secrets, the newest first, and removes the releases of the oldest beyond maxStored bytes.
func dropOld(all []corev1.Secret) {
	slices.SortStableFunc(all, func(a, b corev1.Secret) int { return versionOf(&b) - versionOf(&a) })
	size := 0
	for i := range all {
		if size += len(all[i].Data[dataKey]); size > maxStored {
			all[i].Data = nil
		}
	}
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

// sizeOf returns the size of a stored release after it is decompressed, and valueBytes for each value in it. It stops
// soon after limit.
func sizeOf(data []byte, limit int64) int64 {
	in := bufio.NewReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(data)))
	var text io.Reader = in
	if start, err := in.Peek(2); err == nil && start[0] == 0x1f && start[1] == 0x8b {
		if text, err = gzip.NewReader(in); err != nil {
			return int64(len(data)) // corrupt: Helm reports it
		}
	}
	m, buffer := meter{}, make([]byte, 32<<10)
	for m.size <= limit {
		n, err := text.Read(buffer)
		m.add(buffer[:n])
		if err != nil { // Helm reports what is corrupt
			break
		}
	}
	return m.size
}

// meter measures JSON.
type meter struct {
	size             int64
	isText, isEscape bool // inside of a string, after a backslash in it
}

// add measures the next part of a text.
func (m *meter) add(text []byte) {
	m.size += int64(len(text))
	for _, c := range text {
		switch {
		case m.isEscape:
			m.isEscape = false
		case m.isText:
			m.isText, m.isEscape = c != '"', c == '\\'
		case c == '"':
			m.isText = true
		case c == ',', c == '[', c == '{':
			m.size += valueBytes
		}
	}
}

// complete returns the releases that have what Helm and the controllers read without a check.
func complete(found []ri.Releaser) []ri.Releaser {
	return slices.DeleteFunc(found, func(r ri.Releaser) bool { return !isComplete(r) })
}

func isComplete(r ri.Releaser) bool {
	rel, ok := r.(*release.Release)
	return ok && rel != nil && rel.Info != nil && rel.Version > 0 && !slices.Contains(rel.Hooks, nil)
}
