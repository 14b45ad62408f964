// Package stubsecrets provides tests of functions with Secrets, without a cluster.
package stubsecrets

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Reader is a reader of Secrets, by name in any namespace. It lists nothing.
type Reader map[string]map[string][]byte

// Get implements [client.Reader].
func (s Reader) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	data, found := s[key.Name]
	if !found {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, key.Name)
	}
	into.(*corev1.Secret).Data = data
	return nil
}

// List implements [client.Reader].
func (Reader) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }
