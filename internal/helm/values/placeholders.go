package values

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// WithPlaceholders returns a reader that gives placeholders for the values of Secrets. Keys of documents stay: a chart
// needs them.
func WithPlaceholders(read Reader, refs []meta.ValuesReference, p *redact.Placeholders) Reader {
	return placeholderReader{read, refs, p}
}

type placeholderReader struct {
	Reader
	refs         []meta.ValuesReference
	placeholders *redact.Placeholders
}

// Secret implements [Reader].
func (r placeholderReader) Secret(ctx context.Context, key types.NamespacedName) (*corev1.Secret, error) {
	secret, err := r.Reader.Secret(ctx, key)
	if err != nil {
		return nil, err
	}
	out := &corev1.Secret{ObjectMeta: secret.ObjectMeta,
		Data: r.placeholders.Data(key.Namespace, key.Name, secret.Data)}
	for _, ref := range r.refs {
		content, found := secret.Data[ref.GetValuesKey()]
		if ref.Kind == kindSecret && ref.Name == key.Name && ref.TargetPath == "" && found {
			out.Data[ref.GetValuesKey()] = []byte(r.placeholders.Document("Secret/"+key.String()+"/"+ref.GetValuesKey(),
				string(content)))
		}
	}
	return out, nil
}

// File implements [Reader].
func (r placeholderReader) File(ctx context.Context, ref meta.ValuesReference, _ *redact.Placeholders) (*File, error) {
	return r.Reader.File(ctx, ref, r.placeholders)
}
