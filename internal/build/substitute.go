package build

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/build/substitute"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/limits/yamlsize"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// Substitution defines the variables that are replaced.
type Substitution struct {
	Variables map[string]string
	Secret    map[string]bool // the variables that come from Secrets
	Strict    bool            // a variable that is not set and has no default is an error
}

// hasSecrets reports whether a variable comes from a Secret.
func (s *Substitution) hasSecrets() bool { return s != nil && len(s.Secret) > 0 }

// withPlaceholders returns the substitution with placeholders for what comes from Secrets.
func (s *Substitution) withPlaceholders() *Substitution {
	if !s.hasSecrets() {
		return s
	}
	placeholders := redact.Unlike()
	out := &Substitution{Variables: maps.Clone(s.Variables), Strict: s.Strict}
	for name := range s.Secret {
		out.Variables[name] = placeholders.Of(name, s.Variables[name])
	}
	return out
}

// substituteAnnotation is a label or an annotation. Its value "disabled" excludes an object from substitution.
var substituteAnnotation = kustomizev1.GroupVersion.Group + "/substitute"

// substitute replaces the variables in all objects, and returns all problems as one error.
func (f *filesystem) substitute(objects []*unstructured.Unstructured, s *Substitution) error {
	left := substitute.NewBudget(maxInput)
	variables := make(map[string]string, len(s.Variables))
	for name, value := range s.Variables {
		variables[name] = strings.ReplaceAll(value, "\n", "") // as documented: a value is one line
	}
	missing := missing{where: map[string][]string{}}
	var problems []error
	for _, o := range objects {
		if disabled(substituteAnnotation, o.GetLabels(), o.GetAnnotations()) {
			continue
		}
		found, notes := substitute.Object(o.Object, variables, s.Strict, left, f.takeExpanded)
		f.noteTypes(o, notes)
		for _, p := range found {
			if guard.IsMemory(p.Err) {
				return p.Err
			}
			if m := (*substitute.Missing)(nil); errors.As(p.Err, &m) {
				missing.add(m.Names, p.Field+" of "+f.show(o))
				continue
			}
			problems = append(problems, refusal("%s of %s", p.Field, f.show(o)).Because(p.Err))
		}
	}
	if len(problems) > 0 {
		problems = append(problems, refusal("to keep braces as they are, write $${ for ${, or set the annotation "+
			"%s: disabled", substituteAnnotation))
	}
	return join(append(missing.errors(), problems...))
}

// noteTypes keeps what is said about the values of an object: warnings about values that YAML cut, and the fields that
// changed from text to another type, for errors about it.
func (f *filesystem) noteTypes(o *unstructured.Unstructured, notes []substitute.Note) {
	for _, n := range notes {
		if n.IsCut {
			if len(f.warnings) < mostProblems {
				f.warnings = append(f.warnings, fmt.Sprintf("%s: %s. To keep it, define the variable quote as "+
					"'\"' and write %s", f.show(o), n, n.Keep()))
			}
			continue
		}
		if f.retyped == nil {
			f.retyped = map[*unstructured.Unstructured][]substitute.Note{}
		}
		f.retyped[o] = append(f.retyped[o], n)
	}
}

// maxTypeNotes is the number of fields that a hint about types names.
const maxTypeNotes = 3

// typeHint returns what to do about fields of an object that variables changed from text to another type, or "".
func (f *filesystem) typeHint(o *unstructured.Unstructured, isField func(field string) bool) string {
	var fields []string
	for _, n := range f.retyped[o] {
		if isField(n.Field) && len(fields) < maxTypeNotes {
			fields = append(fields, fmt.Sprintf("%s; to keep text, write %s", n, n.Keep()))
		}
	}
	if len(fields) == 0 {
		return ""
	}
	return strings.Join(fields, ". ") + " and define the variable quote as '\"'"
}

// takeExpanded takes memory for a text whose variables were replaced, before it is parsed. The values of all such texts
// count together with those of the build, as they remain.
func (f *filesystem) takeExpanded(text []byte) error {
	if err := yamlsize.Check(text); err != nil {
		return err
	}
	values := yamlsize.Values(text)
	f.weight.Values += values
	f.outputValues += values
	return f.grow(f.needs() + yamlsize.Memory(text))
}

// missing collects the fields that use variables that are not set.
type missing struct {
	names []string
	where map[string][]string
}

func (m *missing) add(names []string, where string) {
	for _, n := range names {
		if m.where[n] == nil {
			m.names = append(m.names, n)
		}
		m.where[n] = append(m.where[n], where)
	}
}

// maxMissing is the maximum number of variables in an error message.
const maxMissing = 100

// errors returns one error that lists the variables, each with the first field that uses it.
func (m *missing) errors() []error {
	if len(m.names) == 0 {
		return nil
	}
	slices.Sort(m.names)
	var texts []string
	for i, n := range m.names {
		if i == maxMissing {
			texts = append(texts, fmt.Sprintf("and %d more", len(m.names)-maxMissing))
			break
		}
		text := fmt.Sprintf("%s (%s", n, m.where[n][0])
		if more := len(m.where[n]) - 1; more > 0 {
			text += fmt.Sprintf(", and %d more", more)
		}
		texts = append(texts, text+")")
	}
	return []error{refusal("variables are not set: %s", strings.Join(texts, ", ")).
		WithHint("Set them in spec.postBuild, give them defaults as in ${name:=value}, write $${ for a literal ${, "+
			"or set the annotation %s: disabled", substituteAnnotation)}
}
