package compose

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// maxDirectories bounds the directories that a pattern can discover.
const maxDirectories = 10_000

// pattern is a path pattern.
type pattern struct {
	text  string
	alias string
	parts []*regexp.Regexp // one for each part of the path
	names []string         // of all captures
}

// capture matches {name}.
var capture = regexp.MustCompile(`\{([A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?)\}`)

// parsePattern parses @<alias>/<path>. In each part of the path, {name} captures text, and * matches any text.
func parsePattern(text string) (*pattern, error) {
	alias, dirs, err := split(text)
	if err != nil {
		return nil, err
	}
	if !fs.ValidPath(dirs) || dirs == "." {
		return nil, fmt.Errorf("'%s' does not select directories", text)
	}
	p := &pattern{text: text, alias: alias}
	for part := range strings.SplitSeq(dirs, "/") {
		expression := ""
		for rest := part; rest != ""; {
			at := capture.FindStringSubmatchIndex(rest)
			if at == nil {
				expression += literal(rest)
				break
			}
			name := rest[at[2]:at[3]]
			if slices.Contains(p.names, name) {
				return nil, fmt.Errorf("'%s' captures '%s' twice", text, name)
			}
			if wrong := validation.IsQualifiedName(name); len(wrong) > 0 {
				return nil, fmt.Errorf("'%s' captures '%s', which cannot be a label: %s", text, name, wrong[0])
			}
			p.names = append(p.names, name)
			expression += literal(rest[:at[0]]) + "(.+)"
			rest = rest[at[1]:]
		}
		if strings.ContainsAny(capture.ReplaceAllString(part, ""), `{}[]?\`) || strings.Contains(part, "**") {
			return nil, fmt.Errorf("'%s' has a part '%s' that is not a name, {name} or *", text, part)
		}
		p.parts = append(p.parts, regexp.MustCompile("^(?s:"+expression+")$"))
	}
	return p, nil
}

// literal returns the regular expression of text with *.
func literal(s string) string { return strings.ReplaceAll(regexp.QuoteMeta(s), `\*`, ".*") }

// captures maps the names of a pattern to the text that they captured in the path of one directory.
type captures map[string]string

// discover returns the captures of each directory that matches, in the order of their paths.
func (p *pattern) discover(tree *artifact.Tree) ([]captures, error) {
	var found []captures
	var walk func(dir *artifact.Dir, depth int, values []string) error
	walk = func(dir *artifact.Dir, depth int, values []string) error {
		for i := range dir.Entries {
			e := &dir.Entries[i]
			match := p.parts[depth].FindStringSubmatch(e.Name)
			if e.Dir == nil || match == nil {
				continue
			}
			all := append(slices.Clip(values), match[1:]...)
			if depth+1 < len(p.parts) {
				if err := walk(e.Dir, depth+1, all); err != nil {
					return err
				}
				continue
			}
			c := captures{}
			for j, name := range p.names {
				c[name] = all[j]
			}
			if found = append(found, c); len(found) > maxDirectories {
				return fmt.Errorf("more than %d directories match", maxDirectories)
			}
		}
		return nil
	}
	return found, walk(tree.Root(), 0, nil)
}

// Expand returns the outputs for each directory that the path pattern discovers in its source. Captures are
// converted to lower case in names and labels, but not in copies. The error is a fault.
func Expand(pathPattern string, outputs []Output, trees map[string]*artifact.Tree) ([]Output, error) {
	p, err := parsePattern(pathPattern)
	if err != nil {
		return nil, invalid("spec.pathPattern: %s", err)
	}
	tree := trees[p.alias]
	if tree == nil {
		return nil, invalid("spec.pathPattern: no source has the alias '%s'", p.alias)
	}
	found, err := p.discover(tree)
	if err != nil {
		return nil, invalid("spec.pathPattern '%s': %s", p.text, err)
	}
	if len(found) == 0 {
		return nil, fault.New(meta.BuildFailedReason, "no directory matches spec.pathPattern '%s'", p.text).
			WithHint("Correct it, or delete the ArtifactGenerator if it is no longer needed. Its last artifacts stay " +
				"available")
	}
	var expanded []Output
	for _, c := range found {
		labels, err := c.labels()
		if err != nil {
			return nil, invalid("spec.pathPattern '%s': %s", p.text, err)
		}
		for _, o := range outputs {
			expanded = append(expanded, o.with(c, labels))
		}
	}
	return expanded, checkNames(expanded)
}

// labels returns the captures in lower case, as used in labels.
func (c captures) labels() (map[string]string, error) {
	out := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(c)) {
		value := strings.ToLower(c[name])
		if wrong := validation.IsValidLabelValue(value); len(wrong) > 0 {
			return nil, fmt.Errorf("the directory name '%s' cannot be a label: %s", c[name], wrong[0])
		}
		out[name] = value
	}
	return out, nil
}

// with returns the output with captures replaced.
func (o Output) with(c captures, labels map[string]string) Output {
	var original, lower []string
	for name, value := range c {
		original = append(original, "{"+name+"}", value)
		lower = append(lower, "{"+name+"}", labels[name])
	}
	as, inLower := strings.NewReplacer(original...), strings.NewReplacer(lower...)
	out := Output{Name: inLower.Replace(o.Name), Namespace: inLower.Replace(o.Namespace), Revision: o.Revision,
		Origin: o.Origin, Inputs: as.Replace(o.Inputs), Metadata: as.Replace(o.Metadata), Labels: labels}
	for _, copied := range o.Copies {
		exclude := make([]string, 0, len(copied.Exclude))
		for _, e := range copied.Exclude {
			exclude = append(exclude, as.Replace(e))
		}
		out.Copies = append(out.Copies, Copy{From: as.Replace(copied.From), To: as.Replace(copied.To), Exclude: exclude,
			Strategy: copied.Strategy, Optional: copied.Optional})
	}
	return out
}

// checkNames refuses names that are not valid for objects, and duplicates.
func checkNames(outputs []Output) error {
	from := map[types.NamespacedName]Output{}
	for _, o := range outputs {
		if wrong := validation.IsDNS1123Subdomain(o.Name); len(wrong) > 0 {
			return invalid("the artifact name '%s' is not valid: %s", o.Name, wrong[0])
		}
		if wrong := validation.IsDNS1123Label(o.Namespace); o.Namespace != "" && len(wrong) > 0 {
			return invalid("the namespace '%s' of artifact '%s' is not valid: %s", o.Namespace, o.Name, wrong[0])
		}
		key := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
		if other, ok := from[key]; ok {
			if len(o.Labels) == 0 {
				return invalid("two artifacts have the name '%s'", o.Name)
			}
			return invalid("the directories of '%s' and '%s' both produce an artifact named '%s'",
				path.Clean(other.Copies[0].From), path.Clean(o.Copies[0].From), o.Name)
		}
		from[key] = o
	}
	return nil
}
