package alert

import (
	"fmt"
	"testing"

	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
)

// numbered returns a map with n keys.
func numbered(n int) map[string]string {
	all := map[string]string{}
	for i := range n {
		all[fmt.Sprint("key-", i)] = "x"
	}
	return all
}

func TestHintOfTooMuchMetadata(t *testing.T) {
	_, err := compile(&notificationv1.Alert{Spec: notificationv1.AlertSpec{EventMetadata: numbered(maxMetadata + 1)}},
		false)
	expectFault(t, "metadata", err, "ValidationFailed", "Remove keys that the receivers of the events do not need",
		true)
}
