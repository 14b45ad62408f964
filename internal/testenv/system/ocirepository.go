package system

import (
	"fmt"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

const ContentMediaType = types.MediaType("application/vnd.cncf.flux.content.v1.tar+gzip")

// OCIRepository makes an OCIRepository of a repository in a registry.
func (s *System) OCIRepository(r *testenv.Registry, name string, change ...func(*sourcev1.OCIRepositorySpec)) {
	s.Helper()
	o := &sourcev1.OCIRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name},
		Spec: sourcev1.OCIRepositorySpec{URL: r.OCI + "/" + name, Interval: metav1.Duration{Duration: time.Hour},
			Insecure: r.CA == nil},
	}
	for _, c := range change {
		c(&o.Spec)
	}
	s.Create(o)
}

// OCIRepositoryReady waits until an OCIRepository is Ready at a digest, and has handled what was asked for before.
func (s *System) OCIRepositoryReady(name string, digest name.Digest) *sourcev1.OCIRepository {
	s.Helper()
	o := &sourcev1.OCIRepository{}
	testenv.Eventually(s, name+" is Ready", func() error {
		if err := s.Get(o, name); err != nil {
			return err
		}
		asked := o.Annotations[meta.ReconcileRequestAnnotation]
		if !reconcile.IsReady(o) || !o.Status.Artifact.HasRevision("latest@"+digest.DigestStr()) ||
			asked != o.Status.LastHandledReconcileAt {
			return fmt.Errorf("%+v %+v", o.Status.Artifact, o.Status.Conditions)
		}
		return nil
	})
	return o
}

// RequestsSince is what a registry was asked since.
func RequestsSince(r *testenv.Registry, before map[string]int64) map[string]int64 {
	diff := map[string]int64{}
	for what, n := range r.Stats() {
		if n -= before[what]; n != 0 && what != "bytesSent" {
			diff[what] = n
		}
	}
	return diff
}
