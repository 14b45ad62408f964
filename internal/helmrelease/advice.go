package helmrelease

import (
	"strings"

	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// advice says what to do about failures whose text does not.
var advice = []struct{ text, hint string }{
	{"may not be more than 1048576 bytes", "Helm stores a release in one Secret of at most 1 MiB: leave out large " +
		"files of the chart with .helmignore, move objects to another chart, or shorten the values"},
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
