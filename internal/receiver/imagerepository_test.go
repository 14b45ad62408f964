package receiver_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

func TestWebhookReconcilesImageRepository(t *testing.T) {
	address := testenv.FreeAddress(t)
	s := system.NewImages(t, func(o *options.Options) { o.ReceiverAddr = address })
	h := &hooks{s.System, "http://" + address}
	s.Push("app", time.Now(), "1.0.0")
	s.ImageRepository("app")
	s.Scanned("app", 1)
	s.ImagePolicy("app", "app", system.BySemVer("*"))
	s.Latest("app", "1.0.0")
	s.Push("app", time.Now(), "1.1.0")
	s.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "webhook-token"},
		StringData: map[string]string{"token": webhookToken}})
	r := h.receiver("registry", notificationv1.GenericReceiver, func(spec *notificationv1.ReceiverSpec) {
		spec.Resources = []notificationv1.ReceiverResource{{Kind: imagev1.ImageRepositoryKind, Name: "app"}}
	}, "Succeeded")
	if status, response := h.post(r.Status.WebhookPath, `{}`); status != 200 {
		t.Fatalf("%d %s", status, response)
	}
	s.Latest("app", "1.1.0")
}
