package build

import (
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/limits/yamlsize"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func refusal(format string, args ...any) *fault.Fault {
	return fault.New(meta.BuildFailedReason, format, args...)
}

func leadsOut(name string) error {
	return refusal("%s is a symlink that leads out of the source", name).
		WithHint("Keep everything that a build reads inside the repository")
}

// explainRead returns a fault for an error of reading a file.
func explainRead(name string, err error) error {
	if fault.As(err) != nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return refusal("%s cannot be read", name).Because(err)
}

// explain returns an error that is more specific than the error of kustomize, if the cause can be found.
func (f *filesystem) explain(err error) error {
	if f.refused != nil {
		return f.refused
	}
	if found := join(f.wrongFiles()); found != nil {
		return found
	}
	said := show(err.Error())
	if _, id, ok := strings.Cut(said, "already registered id: "); ok {
		if found := f.duplicate(id); found != nil {
			return found
		}
	}
	return refusal("kustomize cannot build the source").Because(brief(errors.New(said)))
}

// wrongFiles returns the problems of the files that kustomize read or would have read.
func (f *filesystem) wrongFiles() (problems []error) {
	for _, name := range f.resources.names {
		f.files.add(name)
	}
	for _, name := range f.files.names {
		b, err := f.ReadFile(path.Join(mount, name))
		if err != nil {
			problems = append(problems, explainRead(name, err))
			continue
		}
		err = documents(b, func(doc *yaml.Node) error {
			var v any
			return yamlsize.Decode(doc, &v) // finds errors that parsing does not, such as duplicate keys
		})
		if err != nil {
			problems = append(problems, syntaxError(name, b, err))
			continue
		}
		problems = append(problems, malformed(name, b))
		if f.resources.has[name] {
			objects, _ := f.manifests(name) // the file was read above without an error
			problems = append(problems, notObjects(objects)...)
		}
	}
	return problems
}

// duplicate returns an error with the files that declare an object. The ID of the object has kustomize's format
// Kind.version.group/name.namespace.
func (f *filesystem) duplicate(id string) error {
	for _, name := range f.files.names {
		objects, err := f.manifests(name)
		if err != nil {
			continue
		}
		for _, o := range objects {
			group := o.group
			if group == "" {
				group = "[noGrp]"
			}
			namespace := o.namespace
			if namespace == "" {
				namespace = "[noNs]"
			}
			rest, ok := strings.CutPrefix(id,
				fmt.Sprintf("%s.%s.%s/%s.%s", o.kind, o.version, group, o.name, namespace))
			if ok && !continues.MatchString(rest) {
				return twice(o.identity, f.declaring(o.kind, o.name))
			}
		}
	}
	return nil
}

// continues matches text that continues the name of a namespace.
var continues = regexp.MustCompile(`^[a-z0-9-]`)

// declaring returns the locations of objects of the kind and name in the files that were read.
func (f *filesystem) declaring(kind, name string) (where []string) {
	for _, file := range f.files.names {
		objects, err := f.manifests(file)
		if err != nil {
			continue
		}
		for _, o := range objects {
			if o.kind == kind && o.name == name {
				where = append(where, o.where)
			}
		}
	}
	return where
}

// brief returns an error with the beginning of the text of another. That of the library may have millions of lines.
func brief(err error) error { return errors.New(excerpt.Bytes(err.Error(), maxProblem)) }

// maxProblem is the length, in bytes, of the text of a problem.
const maxProblem = 2000

// mostProblems is the maximum number of problems in an error message.
const mostProblems = 10

// join combines problems into one error, or returns nil if there are none.
func join(problems []error) error {
	var texts []string
	for _, p := range problems {
		if p != nil {
			texts = append(texts, p.Error())
		}
	}
	switch n := len(texts); {
	case n == 0:
		return nil
	case n > mostProblems:
		texts = append(texts[:mostProblems], fmt.Sprintf("and %d more", n-mostProblems))
	}
	return refusal("%s", strings.Join(texts, "; "))
}
