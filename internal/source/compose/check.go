package compose

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	maxGlob  = 1024 // bytes of a glob
	maxForms = 64   // that the braces of a glob stand for, each of which is compared with a path
)

// Check validates outputs before a source is read: aliases, names, globs and target paths. Values of captures are
// validated by [Expand]. The error is a fault.
func Check(aliases []string, pathPattern string, outputs []Output) error {
	for i, a := range aliases {
		if slices.Contains(aliases[:i], a) {
			return invalid("two sources in spec.sources have the alias '%s'", a)
		}
	}
	names := []string{}
	if pathPattern != "" {
		p, err := parsePattern(pathPattern)
		if err != nil {
			return invalid("spec.pathPattern: %s", err)
		}
		if !slices.Contains(aliases, p.alias) {
			return invalid("spec.pathPattern: no source has the alias '%s'", p.alias)
		}
		names = p.names
	} else if err := checkNames(outputs); err != nil {
		return err
	}
	for _, o := range outputs {
		for field, ref := range map[string]string{"revision": o.Revision, "originRevision": o.Origin} {
			if alias := strings.TrimPrefix(ref, "@"); ref != "" && !slices.Contains(aliases, alias) {
				return invalid("%s of artifact '%s': no source has the alias '%s'", field, o.Name, alias)
			}
		}
		// Any value without special characters of globs can replace the captures.
		example := captures{}
		for _, n := range names {
			example[n] = "x"
		}
		filled := o.with(example, example)
		if err := checkFile(filled.Inputs, append([]string{generated}, aliases...)); err != nil {
			return invalid("inputsFrom '%s' of artifact '%s': %s", o.Inputs, o.Name, err)
		}
		if err := checkFile(filled.Metadata, aliases); err != nil {
			return invalid("managedNamespaces.metadata.fromSource.path '%s': %s", o.Metadata, err)
		}
		for i, c := range filled.Copies {
			if err := checkCopy(c, aliases); err != nil {
				return invalid("copy '%s' of artifact '%s': %s", o.Copies[i].From, o.Name, err)
			}
		}
	}
	return nil
}

// checkFile validates the path of one file. An empty one is valid.
func checkFile(from string, aliases []string) error {
	if from == "" {
		return nil
	}
	alias, name, err := split(from)
	switch {
	case err != nil:
		return err
	case !slices.Contains(aliases, alias):
		return fmt.Errorf("no source has the alias '%s'", alias)
	case !fs.ValidPath(name) || name == ".":
		return fmt.Errorf("'%s' is not the path of a file in the source", name)
	}
	return nil
}

// checkCopy validates one copy.
func checkCopy(c Copy, aliases []string) error {
	alias, glob, err := split(c.From)
	if err != nil {
		return err
	}
	if !slices.Contains(aliases, alias) {
		return fmt.Errorf("no source has the alias '%s'", alias)
	}
	if !fs.ValidPath(glob) {
		return fmt.Errorf("'%s' is outside of the source", glob)
	}
	for _, g := range append([]string{glob}, c.Exclude...) {
		if len(g) > maxGlob || forms(g) > maxForms || !doublestar.ValidatePattern(g) {
			return fmt.Errorf("'%.100s' is not a valid glob of at most %d bytes, whose braces stand for at most %d "+
				"forms", g, maxGlob, maxForms)
		}
	}
	if _, _, err := place(c.To); err != nil {
		return err
	}
	if !slices.Contains([]string{"", Overwrite, Merge, Extract}, c.Strategy) {
		return fmt.Errorf("the strategy '%s' is not one of %s, %s and %s", c.Strategy, Overwrite, Merge, Extract)
	}
	return nil
}

// forms returns how many forms the braces of a glob stand for at most, or more than maxForms: {a,b}{c,d} stands for
// four.
func forms(glob string) int {
	product, open := 1, []int{} // the alternatives of each brace that is open
	for _, c := range glob {
		switch {
		case c == '{':
			open = append(open, 1)
		case c == ',' && len(open) > 0:
			open[len(open)-1]++
		case c == '}' && len(open) > 0:
			product = min(product*open[len(open)-1], maxForms+1)
			open = open[:len(open)-1]
		}
	}
	return product
}

// invalid is the fault of an object that must be changed.
func invalid(format string, args ...any) error {
	return fault.New(extensionsv1beta1.ValidationFailedReason, format, args...).
		WithHint("Correct the ArtifactGenerator. Its last artifacts stay available").Final()
}
