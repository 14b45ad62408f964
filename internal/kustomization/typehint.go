package kustomization

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-gitops/sluice/internal/build"
)

// typeMarks are parts of what API servers say about a field of another type.
var typeMarks = []string{"expected string", "cannot unmarshal", "must be of type", "must be string", "invalid type"}

// explainTypes adds to the error of an apply which fields of the refused object variables changed to another type.
func explainTypes(err error, built *build.Result) error {
	text := err.Error()
	isMark := func(m string) bool { return strings.Contains(text, m) }
	if built.TypeHint == nil || !slices.ContainsFunc(typeMarks, isMark) {
		return err
	}
	for _, o := range built.Objects {
		if !strings.Contains(text, o.GetName()) {
			continue
		}
		if hint := built.TypeHint(o); hint != "" {
			return fmt.Errorf("%w. %s", err, hint)
		}
	}
	return err
}
