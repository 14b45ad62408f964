package alert

import (
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// expectFault checks the reason, the text and the Terminal field of a fault.
func expectFault(t *testing.T, name string, err error, reason, want string, terminal bool) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error, want %q", name, want)
		return
	}
	f := fault.As(err)
	if f == nil || f.Reason != reason || f.Terminal != terminal || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: got fault %#v (%v), want reason %s, terminal %t and text %q", name, f, err, reason,
			terminal, want)
	}
}
