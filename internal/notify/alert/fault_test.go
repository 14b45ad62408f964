package alert

import (
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/fault"
)

// expectFault checks what an error says, and of what kind it is.
func expectFault(t *testing.T, name string, err error, reason, says string, terminal bool) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error, want %q", name, says)
		return
	}
	f := fault.As(err)
	if f == nil || f.Reason != reason || f.Terminal != terminal || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: %#v says %v, want reason %s, terminal %t, and %q", name, f, err, reason, terminal, says)
	}
}
