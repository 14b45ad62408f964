package kustomization

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
)

// secrets is a reader of Secrets, by name.
type secrets map[string]map[string][]byte

func (s secrets) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	data, found := s[key.Name]
	if !found {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, key.Name)
	}
	into.(*corev1.Secret).Data = data
	return nil
}

func (secrets) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func TestHintsOfReferences(t *testing.T) {
	c := &Controller{Live: secrets{"broken": {"a.agekey": []byte("no key")}}}
	keys := func(d kustomizev1.Decryption) error {
		_, err := c.readKeys(t.Context(),
			&kustomizev1.Kustomization{Spec: kustomizev1.KustomizationSpec{Decryption: &d}},
			fnv.New64())
		return err
	}
	_, source := c.source(t.Context(), &kustomizev1.Kustomization{Spec: kustomizev1.KustomizationSpec{
		SourceRef: kustomizev1.SourceReference{Kind: "HelmChart"}}})
	for want, err := range map[string]error{
		"Set it to sops": keys(kustomizev1.Decryption{Provider: "vault"}),
		"Create it, or correct spec.decryption.secretRef": keys(kustomizev1.Decryption{Provider: "sops",
			SecretRef: &meta.LocalObjectReference{Name: "none"}}),
		"Replace the value of this entry in the Secret": keys(kustomizev1.Decryption{Provider: "sops",
			SecretRef: &meta.LocalObjectReference{Name: "broken"}}),
		"Use a GitRepository, OCIRepository, Bucket or ExternalArtifact": fmt.Errorf("%s", source),
	} {
		if err == nil || !strings.HasSuffix(err.Error(), ". "+want) {
			t.Errorf("got %v, want the hint %q", err, want)
		}
	}
}
