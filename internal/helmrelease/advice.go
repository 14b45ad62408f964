package helmrelease

import (
	"strings"

	"github.com/sluice-gitops/sluice/internal/fault"
)

// advice says what to do about failures whose text does not.
var advice = []struct{ text, hint string }{
	{"may not be more than 1048576 bytes", "Helm stores a release in one Secret of at most 1 MiB: leave out large " +
		"files of the chart with .helmignore, move objects to another chart, or shorten the values"},
	{"duplicate entries for key", "Remove one of the entries of that name from the chart or its values: server-side " +
		"apply needs different names. With serverSideApply off in spec.install and spec.upgrade, the last one counts"},
}

// withAdvice adds to a failure what to do about it.
func withAdvice(f *fault.Fault, err error) *fault.Fault {
	for _, a := range advice {
		if strings.Contains(err.Error(), a.text) {
			return f.WithHint("%s", a.hint)
		}
	}
	return f
}
