package access

import (
	"testing"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/fault"
)

func TestHintFitsTheBucket(t *testing.T) {
	for want, spec := range map[string]sourcev1.BucketSpec{
		"'aws' supports 'aws', 'generic' supports 'ldap', other providers support no STS": {
			Provider: sourcev1.ProviderGCP, STS: &sourcev1.BucketSTS{Provider: sourcev1.STSProviderAWS}},
		"Remove spec.serviceAccountName, or set spec.provider to aws, gcp or azure and remove spec.secretRef": {
			Provider: sourcev1.ProviderAWS, ServiceAccountName: "app",
			SecretRef: &meta.LocalObjectReference{Name: "s"}},
	} {
		err := checkProvider(spec)
		if f := fault.As(err); f == nil || f.Hint != want {
			t.Errorf("got %v, want the hint %q", err, want)
		}
	}
}
