// Package message makes the text of a commit from a template that users write. A template can read what was
// changed, and nothing else; its work and its output are bounded.
package message

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/internal/image/edit"
)

// Default is the message of automations that bring no template.
const Default = "Update from image update automation"

const (
	maxTemplate = 64 << 10 // bytes
	maxOutput   = 64 << 10 // bytes
	maxRounds   = 100_000  // of all loops and calls of templates together
)

// ErrRemoved says that the template uses .Updated, which the API no longer has.
var ErrRemoved = errors.New("the field .Updated was removed from templates: use .Changed")

// Data is what a template reads.
type Data struct {
	AutomationObject types.NamespacedName
	Changed          Changed
	Values           map[string]string
}

// Changed is what was changed.
type Changed struct {
	FileChanges map[string]ObjectChanges
	inOrder     []Change
}

// ObjectChanges are changes by the object that they are in. What is in no object, such as Helm values, has
// the zero identifier.
type ObjectChanges map[ObjectIdentifier][]Change

// ObjectIdentifier is an object as the file has it. A kustomization has no name.
type ObjectIdentifier struct{ Name, Namespace, APIVersion, Kind string }

// Change is a value that was set.
type Change struct{ OldValue, NewValue, Setter string }

// Changes are all of them.
func (c Changed) Changes() []Change { return c.inOrder }

// Objects are all changes by object, whatever the file.
func (c Changed) Objects() ObjectChanges {
	all := ObjectChanges{}
	for _, file := range slices.Sorted(maps.Keys(c.FileChanges)) {
		for o, changes := range c.FileChanges[file] {
			all[o] = append(all[o], changes...)
		}
	}
	return all
}

// DataOf makes what a template reads.
func DataOf(automation types.NamespacedName, changes []edit.Change, values map[string]string) Data {
	d := Data{AutomationObject: automation, Changed: Changed{FileChanges: map[string]ObjectChanges{}}, Values: values}
	for _, c := range changes {
		if d.Changed.FileChanges[c.File] == nil {
			d.Changed.FileChanges[c.File] = ObjectChanges{}
		}
		o := ObjectIdentifier{Name: c.Object.Name, Namespace: c.Object.Namespace, APIVersion: c.Object.APIVersion,
			Kind: c.Object.Kind}
		change := Change{OldValue: c.Old, NewValue: c.New, Setter: c.Setter}
		d.Changed.FileChanges[c.File][o] = append(d.Changed.FileChanges[c.File][o], change)
		d.Changed.inOrder = append(d.Changed.inOrder, change)
	}
	return d
}

// Template is a template that can be parsed.
type Template struct{ parsed *template.Template }

// Parse reads a template, and tries it on no changes. ErrRemoved is in the error if that is what is wrong.
func Parse(text string) (*Template, error) {
	if len(text) > maxTemplate {
		return nil, fmt.Errorf("the template has more than %d bytes", maxTemplate)
	}
	parsed, err := template.New("template").Option("missingkey=zero").Funcs(functions(new(int))).Parse(text)
	if err != nil {
		return nil, err
	}
	for _, t := range parsed.Templates() {
		if t.Tree == nil {
			continue
		}
		if err := count(t.Root); err != nil {
			return nil, err
		}
	}
	t := &Template{parsed}
	_, err = t.Execute(DataOf(types.NamespacedName{}, nil, nil))
	if errors.Is(err, ErrRemoved) {
		return nil, err
	}
	return t, nil
}

var removed = regexp.MustCompile(`can't evaluate field Updated in type message\.Data`)

// Execute makes the text.
func (t *Template) Execute(d Data) (text string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("a function of the template fails: %v", p)
		}
	}()
	parsed, err := t.parsed.Clone()
	if err != nil {
		return "", err
	}
	var b bounded
	err = parsed.Funcs(functions(new(int))).Execute(&b, d)
	if err != nil && removed.MatchString(err.Error()) {
		return "", ErrRemoved
	}
	return strings.TrimSpace(b.String()), err
}

// bounded is output of bounded length.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxOutput {
		return 0, fmt.Errorf("the text becomes longer than %d bytes", maxOutput)
	}
	return b.Buffer.Write(p)
}

// tick is the function that counts the rounds of loops, and the calls of templates.
const tick = "sluiceCountsRounds"

// count puts a call of tick at the start of every list that may run more than once: nothing else ends a
// template that runs long.
func count(list *parse.ListNode) error {
	if list == nil {
		return nil
	}
	for _, n := range list.Nodes {
		var err error
		switch n := n.(type) {
		case *parse.RangeNode:
			err = errors.Join(count(n.List), count(n.ElseList))
		case *parse.IfNode:
			err = errors.Join(count(n.List), count(n.ElseList))
		case *parse.WithNode:
			err = errors.Join(count(n.List), count(n.ElseList))
		}
		if err != nil {
			return err
		}
	}
	trees, err := parse.Parse("tick", "{{"+tick+"}}", "", "", map[string]any{tick: true})
	if err != nil {
		return err
	}
	list.Nodes = append([]parse.Node{trees["tick"].Root.Nodes[0]}, list.Nodes...)
	return nil
}
