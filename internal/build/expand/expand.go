package expand

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Request is what to render.
type Request struct {
	Providers    []Provider
	Strategy     string // [Permute], or any other
	IncludeEmpty bool   // a provider without inputs makes Permute return none
	// HasInputs is set if inputs are declared. Without, the templates are rendered once.
	HasInputs bool
	Steps     []Step
}

// Step is a group of templates.
type Step struct {
	Name      string            // empty if the templates are not in a step
	Resources []json.RawMessage // objects
	Template  string            // YAML documents
}

// Result is what was rendered.
type Result struct {
	Inputs int                            // the number of input sets
	Steps  [][]*unstructured.Unstructured // the objects of each step
	From   [][]int                        // the number of the input set of each object; 0 without inputs
}

// Expand renders all templates with all inputs. Errors are about the request, and quote it in parts.
func Expand(q Request) (*Result, error) {
	sets, err := combine(q)
	if err != nil {
		return nil, err
	}
	r := &Result{Inputs: len(sets)}
	if !q.HasInputs {
		sets = []inputSet{{}}
	}
	e := expansion{sets: sets, left: MaxText, seen: map[string]int{}}
	for n, s := range q.Steps {
		e.step, e.objects, e.from = n, nil, nil
		if err := e.expand(s); err != nil {
			if s.Name != "" {
				return nil, fmt.Errorf("step '%s': %w", s.Name, err)
			}
			return nil, err
		}
		r.Steps, r.From = append(r.Steps, e.objects), append(r.From, e.from)
	}
	return r, nil
}

// expansion is a render in progress.
type expansion struct {
	sets    []inputSet
	left    int
	seen    map[string]int // the step that has an object
	step    int
	objects []*unstructured.Unstructured
	from    []int // the input sets of the objects
}

func (e *expansion) expand(s Step) error {
	for i, r := range s.Resources {
		text, err := yaml.JSONToYAML(r)
		if err != nil {
			return fmt.Errorf("resources[%d]: %w", i, err)
		}
		if err := e.render(fmt.Sprintf("resources[%d]", i), string(text)); err != nil {
			return err
		}
	}
	return e.render("resourcesTemplate", s.Template)
}

// render renders a template with each input set, and adds the objects.
func (e *expansion) render(name, text string) error {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	t, err := parse(name, text)
	if err != nil {
		return err
	}
	for n, set := range e.sets {
		text, err := t.render(set, &e.left)
		if err != nil {
			return fmt.Errorf("%w%s", err, set)
		}
		objects, err := read(text)
		if err != nil {
			return fmt.Errorf("%s is not valid YAML when it is rendered%s: %w", name, set, err)
		}
		for _, o := range objects {
			if err := e.add(o, n); err != nil {
				return fmt.Errorf("%s%s: %w", name, set, err)
			}
		}
	}
	return nil
}

// excluded is the annotation that leaves an object out.
const excluded = "fluxcd.controlplane.io/reconcile"

// add adds an object of an input set, unless it was rendered before or excludes itself.
func (e *expansion) add(o *unstructured.Unstructured, from int) error {
	if o.GetAPIVersion() == "" || o.GetKind() == "" {
		return errors.New("an object has no apiVersion or no kind")
	}
	if o.GetAnnotations()[excluded] == "disabled" {
		return nil
	}
	gvk := o.GroupVersionKind()
	key := strings.Join([]string{gvk.Group, gvk.Kind, o.GetNamespace(), o.GetName()}, "\x00")
	step, isKnown := e.seen[key]
	switch {
	case isKnown && step != e.step:
		return fmt.Errorf("%s '%s' is also in an earlier step", gvk.Kind, o.GetName())
	case !isKnown:
		e.seen[key] = e.step
		e.objects, e.from = append(e.objects, o), append(e.from, from)
	}
	return nil
}

// read returns the objects of YAML documents, and the items of lists.
func read(text string) (objects []*unstructured.Unstructured, err error) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		b, err := yaml.YAMLToJSON(document)
		if err != nil {
			return nil, err
		}
		if bytes.Equal(b, []byte("null")) || bytes.Equal(b, []byte("{}")) {
			continue
		}
		o := &unstructured.Unstructured{}
		if err := utiljson.Unmarshal(b, &o.Object); err != nil {
			return nil, errors.New("a document is not an object")
		}
		if !o.IsList() {
			objects = append(objects, o)
			continue
		}
		if err := o.EachListItem(func(item runtime.Object) error {
			objects = append(objects, item.(*unstructured.Unstructured))
			return nil
		}); err != nil {
			return nil, err
		}
	}
}
