// Package validate checks the files of a repository without a cluster: manifests, what kustomize and Kustomizations
// build of them, and charts, against the definitions of a version of Kubernetes and of CustomResourceDefinitions.
package validate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-gitops/sluice/config"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build"
	"github.com/sluice-gitops/sluice/internal/helm/render"
	"github.com/sluice-gitops/sluice/internal/offline/schema"
)

// Rules that problems break, in addition to those of package schema.
const (
	Syntax       = "syntax"
	BuildFailed  = "build-failed"
	RenderFailed = "render-failed"
)

// Problem is a place in the files that an API server, or the controllers, would refuse.
type Problem struct {
	Rule    string `json:"rule"`
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"` // 0 if it is not known
	Object  string `json:"object,omitempty"`
	Path    string `json:"path,omitempty"` // of the field
	Message string `json:"message"`
}

// Result is the result of a validation.
type Result struct {
	Problems []Problem `json:"problems"`
	Objects  int       `json:"objects"` // that were checked
	// Unknown are the kinds without a definition, whose objects were not checked.
	Unknown []string `json:"unknownKinds,omitempty"`
}

// Options say what to validate.
type Options struct {
	Files       *artifact.Tree
	Definitions *schema.Definitions
	Renderer    *render.Renderer // of charts
	Strict      bool             // variables without a value and a default are errors, as in the controllers
}

// Run validates files.
func Run(ctx context.Context, o Options) (*Result, error) {
	r := &run{Options: o, result: &Result{}, isCovered: map[string]bool{}, seen: map[Problem]bool{},
		unknown: map[string]bool{}}
	if err := r.addOwnDefinitions(); err != nil {
		return nil, err
	}
	if err := r.find(); err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context) error{r.buildKustomizations, r.buildDirectories, r.renderCharts,
		r.readFiles} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	r.addFoundDefinitions()
	for _, u := range r.units {
		r.check(u)
	}
	slices.SortFunc(r.result.Problems, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.File, b.File), a.Line-b.Line, strings.Compare(a.Object, b.Object),
			strings.Compare(a.Path, b.Path))
	})
	for kind := range r.unknown {
		r.result.Unknown = append(r.result.Unknown, kind)
	}
	slices.Sort(r.result.Unknown)
	return r.result, ctx.Err()
}

// run is one validation.
type run struct {
	Options
	result *Result
	found  files
	units  []*unit

	isCovered map[string]bool // files that a build or a chart has read
	seen      map[Problem]bool
	unknown   map[string]bool
}

// unit is a set of objects that come from one build, chart or file.
type unit struct {
	name    string
	objects []*unstructured.Unstructured
	// locate returns the file and the line of a field of an object; the line is 0 if it is not known.
	locate func(o *unstructured.Unstructured, field string) (file string, line int)
}

// files are the files of a repository by what they are.
type files struct {
	manifests       []string // YAML and JSON
	kustomizations  []string // directories
	charts          []string // directories
	inCharts        func(name string) bool
	isKustomization map[string]bool // files
}

// addOwnDefinitions adds the kinds of Sluice.
func (r *run) addOwnDefinitions() error {
	own, err := config.Definitions()
	for _, crd := range own {
		err = errors.Join(err, r.Definitions.AddCRD(crd))
	}
	return err
}

// addFoundDefinitions adds the kinds that the files define.
func (r *run) addFoundDefinitions() {
	for _, u := range r.units {
		for _, o := range u.objects {
			if o.GetKind() != "CustomResourceDefinition" {
				continue
			}
			if err := r.Definitions.AddCRD(o); err != nil {
				file, line := u.locate(o, "spec")
				r.add(Problem{Rule: schema.WrongValue, File: file, Line: line, Object: nameOf(o), Message: err.Error()})
			}
		}
	}
}

// add adds a problem, unless it was found at the same place already: builds have common bases.
func (r *run) add(p Problem) {
	key := p
	if p.Line > 0 {
		key.Object = ""
	}
	if !r.seen[key] {
		r.seen[key] = true
		r.result.Problems = append(r.result.Problems, p)
	}
}

// check checks the objects of a unit.
func (r *run) check(u *unit) {
	for _, o := range u.objects {
		problems, isKnown := r.Definitions.Check(o.Object)
		if !isKnown {
			r.unknown[o.GetAPIVersion()+" "+o.GetKind()] = true
			continue
		}
		r.result.Objects++
		for _, p := range problems {
			file, line := u.locate(o, p.Path)
			if line == 0 && strings.Contains(p.Path, ".") { // such as a field that is missing
				file, line = u.locate(o, parentOf(p.Path))
			}
			r.add(Problem{Rule: p.Rule, File: cmp.Or(file, u.name), Line: line, Object: nameOf(o), Path: p.Path,
				Message: p.Message})
		}
	}
}

// parentOf returns the path of the object that has a field.
func parentOf(field string) string { return field[:strings.LastIndexByte(field, '.')] }

func nameOf(o *unstructured.Unstructured) string {
	name := o.GetName()
	if o.GetNamespace() != "" {
		name = o.GetNamespace() + "/" + name
	}
	return o.GetKind() + "/" + name
}

// String returns the problem as a line of text, in the form of compilers.
func (p Problem) String() string {
	at := p.File
	if p.Line > 0 {
		at = fmt.Sprintf("%s:%d", at, p.Line)
	}
	about := p.Path
	if p.Object != "" {
		about = strings.TrimSuffix(p.Object+" "+p.Path, " ")
	}
	return strings.Join(slices.DeleteFunc([]string{at, about, p.Message}, func(s string) bool { return s == "" }), ": ")
}

// find sorts the files of the repository.
func (r *run) find() error {
	r.found.isKustomization = map[string]bool{}
	var inCharts []string
	err := r.Files.Walk(func(name string, e *artifact.Entry) error {
		if e.Dir != nil || !e.Mode.IsRegular() {
			return nil
		}
		dir, base := path.Split(name)
		dir = path.Clean(dir)
		switch {
		case base == "Chart.yaml":
			inCharts = append(inCharts, dir)
		case build.IsKustomization(base):
			r.found.isKustomization[name] = true
			if r.buildsAlone(name) {
				r.found.kustomizations = append(r.found.kustomizations, dir)
			}
		}
		if ext := path.Ext(base); ext == ".yaml" || ext == ".yml" || ext == ".json" {
			r.found.manifests = append(r.found.manifests, name)
		}
		return nil
	})
	slices.Sort(inCharts)
	r.found.inCharts = func(name string) bool {
		return slices.ContainsFunc(inCharts, func(dir string) bool { return isBelow(name, dir) })
	}
	for _, dir := range inCharts {
		if !slices.ContainsFunc(r.found.charts, func(parent string) bool { return isBelow(dir, parent) }) {
			r.found.charts = append(r.found.charts, dir)
		}
	}
	return err
}

// isBelow reports whether a name is in a directory.
func isBelow(name, dir string) bool { return dir == "." || strings.HasPrefix(name, dir+"/") }
