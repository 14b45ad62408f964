// Package message renders commit messages from templates that users write. Templates can read only the
// changes; their run time and output are bounded.
package message

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/internal/image/edit"
)

// Default is the message of automations without a template.
const Default = "Update from image update automation"

const (
	maxTemplate = 64 << 10 // bytes
	maxOutput   = 64 << 10 // bytes
	maxRounds   = 100_000  // loop iterations and template calls in total
)

// ErrRemoved means that a template uses the removed field .Updated.
var ErrRemoved = errors.New("field .Updated was removed from templates: use .Changed")

// Data is the data of a template.
type Data struct {
	AutomationObject types.NamespacedName
	Changed          Changed
	Values           map[string]string
}

// Changed is the changes of a commit.
type Changed struct {
	FileChanges map[string]ObjectChanges // by the path of the file below spec.update.path
	inOrder     []Change
}

// ObjectChanges is changes by object. Changes outside of objects, such as in Helm values, have the zero identifier.
type ObjectChanges map[ObjectIdentifier][]Change

// ObjectIdentifier identifies an object in a file. Kustomizations have no name.
type ObjectIdentifier struct{ Name, Namespace, APIVersion, Kind string }

// Change is a value that was set.
type Change struct{ OldValue, NewValue, Setter string }

// Changes returns all changes in order, equal ones once.
func (c Changed) Changes() []Change {
	seen := map[Change]bool{}
	return slices.DeleteFunc(slices.Clone(c.inOrder), func(change Change) bool {
		again := seen[change]
		seen[change] = true
		return again
	})
}

// Objects returns all changes by object, of all files.
func (c Changed) Objects() ObjectChanges {
	all := ObjectChanges{}
	for _, file := range slices.Sorted(maps.Keys(c.FileChanges)) {
		for o, changes := range c.FileChanges[file] {
			all[o] = append(all[o], changes...)
		}
	}
	return all
}

// DataOf returns the data for a template. Dir is spec.update.path.
func DataOf(automation types.NamespacedName, dir string, changes []edit.Change, values map[string]string) Data {
	d := Data{AutomationObject: automation, Changed: Changed{FileChanges: map[string]ObjectChanges{}}, Values: values}
	for _, c := range changes {
		file := below(dir, c.File)
		if d.Changed.FileChanges[file] == nil {
			d.Changed.FileChanges[file] = ObjectChanges{}
		}
		o := ObjectIdentifier{Name: c.Object.Name, Namespace: c.Object.Namespace, APIVersion: c.Object.APIVersion,
			Kind: c.Object.Kind}
		change := Change{OldValue: c.Old, NewValue: c.New, Setter: c.Setter}
		d.Changed.FileChanges[file][o] = append(d.Changed.FileChanges[file][o], change)
		d.Changed.inOrder = append(d.Changed.inOrder, change)
	}
	return d
}

// below returns the path of a file relative to a directory of the repository.
func below(dir, file string) string {
	return strings.TrimPrefix(strings.TrimPrefix("/"+file, strings.TrimSuffix(path.Clean("/"+dir), "/")+"/"), "/")
}

// Template is a parsed template.
type Template struct{ parsed *template.Template }

// Parse parses a template, and executes it without changes to find removed fields, for which the error is ErrRemoved.
func Parse(text string) (*Template, error) {
	if len(text) > maxTemplate {
		return nil, fmt.Errorf("the template is larger than %d bytes", maxTemplate)
	}
	parsed, err := template.New("template").Option("missingkey=zero").Funcs(functions(new(int))).Parse(text)
	if err != nil {
		return nil, err
	}
	for _, t := range parsed.Templates() {
		if t.Tree == nil {
			continue
		}
		if err := insertTicks(t.Root); err != nil {
			return nil, err
		}
	}
	t := &Template{parsed}
	_, err = t.Execute(DataOf(types.NamespacedName{}, "", nil, nil))
	if errors.Is(err, ErrRemoved) {
		return nil, err
	}
	return t, nil
}

var removed = regexp.MustCompile(`can't evaluate field Updated in type message\.Data`)

// Execute renders the template, without leading and trailing white space.
func (t *Template) Execute(d Data) (text string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("a function of the template failed: %v", p)
		}
	}()
	parsed, err := t.parsed.Clone()
	if err != nil {
		return "", err
	}
	var b limitedBuffer
	err = parsed.Funcs(functions(new(int))).Execute(&b, d)
	if err != nil && removed.MatchString(err.Error()) {
		return "", ErrRemoved
	}
	return strings.TrimSpace(b.String()), err
}

// limitedBuffer is a buffer of at most maxOutput bytes.
type limitedBuffer struct{ bytes.Buffer }

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxOutput {
		return 0, fmt.Errorf("the message is longer than %d bytes", maxOutput)
	}
	return b.Buffer.Write(p)
}

// tick is the name of the function that counts loop iterations and template calls.
const tick = "sluiceCountsRounds"

// insertTicks inserts a call of tick at the start of every block that may run more than once, as
// text/template has no limit on run time.
func insertTicks(list *parse.ListNode) error {
	if list == nil {
		return nil
	}
	for _, n := range list.Nodes {
		var err error
		switch n := n.(type) {
		case *parse.RangeNode:
			err = errors.Join(insertTicks(n.List), insertTicks(n.ElseList))
		case *parse.IfNode:
			err = errors.Join(insertTicks(n.List), insertTicks(n.ElseList))
		case *parse.WithNode:
			err = errors.Join(insertTicks(n.List), insertTicks(n.ElseList))
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
