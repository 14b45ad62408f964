package values

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"strconv"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/strvals"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/limits/yamlsize"
)

// Memory in bytes for what a text in the syntax of --set makes of few characters.
const (
	nameBytes = 640 // of a map for a name in a path
	itemBytes = 16  // of an item of a list; an index makes all items before it
	runeBytes = 8   // of a character of a literal value
)

// composer composes values. All of its memory is that of one lease, until the values are no longer used: sources that
// fit each for itself may be too large together.
type composer struct {
	read      Reader
	namespace string
	isTraced  bool // the layers are kept

	result   map[string]any
	secrets  []string
	layers   []layer
	warnings []string
	memory   *guard.Lease
	known    map[string]bool // names of Secrets whose data is among the secrets
}

// compose merges the values. The caller releases the memory, also after an error.
func (c *composer) compose(ctx context.Context, refs []meta.ValuesReference, inline *apiextensionsv1.JSON) error {
	if inline == nil {
		inline = &apiextensionsv1.JSON{}
	}
	size := yamlsize.Memory(inline.Raw)
	if c.isTraced {
		size *= 2
	}
	var err error
	if c.memory, err = guard.BudgetOf(ctx).Acquire(ctx, "composing the values", size); err != nil {
		return err
	}
	own, err := decodeInline(inline)
	if err != nil {
		return err
	}
	c.result, c.known = map[string]any{}, map[string]bool{}
	for i, ref := range refs {
		s := source{ref: ref, namespace: cmp.Or(ref.Namespace, c.namespace),
			position: fmt.Sprintf("spec.valuesFrom[%d]", i), isSecret: ref.Kind == kindSecret}
		if err := s.checkFields(); err != nil {
			return err
		}
		add := c.add
		if ref.IsFile() {
			add = c.addFile
		}
		if err := add(ctx, s, own); err != nil {
			return err
		}
	}
	c.result = loader.MergeMaps(c.result, own)
	if !c.isTraced {
		return nil
	}
	if own, err = decodeInline(inline); err != nil { // a target path may have changed the first copy
		return err
	}
	c.layers = append(c.layers, layer{from: "spec.values", values: own})
	return nil
}

// add merges the values of an entry of valuesFrom into the result.
func (c *composer) add(ctx context.Context, s source, own map[string]any) error {
	content, data, found, err := s.read(ctx, c.read)
	if err != nil {
		return err
	}
	if err := c.keepSecret(ctx, s.ref.Name, data); err != nil || !found {
		return err
	}
	return c.merge(ctx, s, content, own)
}

// addFile merges the values of a file of a source into the result.
func (c *composer) addFile(ctx context.Context, s source, own map[string]any) error {
	file, err := s.readFile(ctx, c.read)
	if err != nil || file == nil {
		return err
	}
	for _, text := range file.Secrets {
		if len(text) < minSecret {
			continue
		}
		if err := c.memory.Grow(ctx, int64(len(text))); err != nil {
			return err
		}
		c.secrets = append(c.secrets, text)
	}
	s.isSecret = file.IsSecret
	return c.merge(ctx, s, file.Content, own)
}

// merge merges a content of an entry into the result.
func (c *composer) merge(ctx context.Context, s source, content string, own map[string]any) error {
	if s.ref.TargetPath == "" {
		if err := c.take(ctx, yamlsize.Memory([]byte(content)), c.isTraced); err != nil {
			return err
		}
		values, err := s.document(content)
		if err != nil {
			return err
		}
		c.result = loader.MergeMaps(c.result, values)
		if c.isTraced {
			values = copyMap(values)
		}
		c.keep(layer{from: s.String(), secret: s.isSecret, isFile: s.ref.IsFile(), values: values})
		return nil
	}
	if err := c.take(ctx, s.setMemory(content), s.isSecret || c.isTraced); err != nil {
		return err
	}
	c.result = loader.MergeMaps(c.result, own)
	if err := s.set(content, c.result); err != nil {
		return err
	}
	if text := s.setsOthers(content); text != "" {
		c.warnings = append(c.warnings, text)
	}
	if s.isSecret || c.isTraced {
		alone := map[string]any{}
		_ = s.set(content, alone)
		c.keep(layer{from: s.String() + ", target path " + s.ref.TargetPath, secret: s.isSecret,
			isFile: s.ref.IsFile(), values: alone})
	}
	return nil
}

// take takes memory for values, or for two copies of them.
func (c *composer) take(ctx context.Context, bytes int64, twice bool) error {
	if twice {
		bytes *= 2
	}
	return c.memory.Grow(ctx, bytes)
}

// keepSecret keeps the data of a Secret as secrets. It does so once for each Secret.
func (c *composer) keepSecret(ctx context.Context, name string, data map[string][]byte) error {
	if data == nil || c.known[name] {
		return nil
	}
	c.known[name] = true
	for _, b := range data {
		if len(b) < minSecret {
			continue
		}
		if err := c.memory.Grow(ctx, int64(len(b))); err != nil {
			return err
		}
		c.secrets = append(c.secrets, string(b))
	}
	return nil
}

// keep keeps what is needed of a layer.
func (c *composer) keep(l layer) {
	if l.secret && !l.isFile { // of a file, only what was encrypted is secret
		c.secrets = appendTexts(c.secrets, l.values)
	}
	if c.isTraced {
		c.layers = append(c.layers, l)
	}
}

// setMemory estimates the memory in bytes for setting the content of a key at the target path.
func (s source) setMemory(content string) int64 {
	text, literal := []byte(s.ref.TargetPath), len(content)
	if !s.ref.Literal { // the content may set further paths
		text, literal = append(append(text, '='), content...), 0
	}
	return yamlsize.Memory(text) + runeBytes*int64(literal) + nameBytes*int64(bytes.Count(text, []byte{'.'})) +
		listBytes(text)
}

// listBytes returns the memory in bytes of the lists that the indexes in a text in the syntax of --set make.
func listBytes(text []byte) int64 {
	text = bytes.ReplaceAll(text, []byte{'\\'}, nil) // an escaped digit is a digit
	total, from := int64(0), -1
	for i, c := range text {
		switch {
		case c == '[':
			from = i + 1
		case c == ']' && from >= 0:
			if index, err := strconv.Atoi(string(text[from:i])); err == nil && index >= 0 {
				total += itemBytes * int64(min(index, strvals.MaxIndex)+1)
			}
			from = -1
		}
	}
	return total
}
