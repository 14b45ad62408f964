package cli

import (
	"fmt"
	"strings"

	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/cli/localbuild"
)

// reportUnknownFields warns of fields that the built-in kinds of built objects do not have. With strict, they are an
// error.
func (e *env) reportUnknownFields(r *localbuild.Result, strict bool) error {
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
