package cli

import (
	"fmt"
	"strings"

	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/offline/localbuild"
)

// warnOf reports the warnings of a build, and fields that the built-in kinds of its objects do not have. With strict,
// such fields are an error.
func (e *env) warnOf(r *localbuild.Result, strict bool) error {
	for _, w := range r.Warnings {
		e.Warn("%s", w)
	}
	var lines []string
	for _, o := range r.Objects {
		for _, path := range apply.UnknownFields(o) {
			field := apply.UnknownField{Path: path, Where: r.Locate(o, path)}
			lines = append(lines, fmt.Sprintf("%s '%s': %s", o.GetKind(), o.GetName(), field))
		}
	}
	switch {
	case len(lines) == 0:
		return nil
	case strict:
		return fmt.Errorf("unknown fields:\n%s", strings.Join(lines, "\n"))
	}
	for _, line := range lines {
		e.Warn("unknown field, which is left out when it is applied: %s", line)
	}
	return nil
}
