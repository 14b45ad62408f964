package build

import (
	"bytes"
	"path"

	yaml "go.yaml.in/yaml/v3"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"sigs.k8s.io/kustomize/api/types"

	"github.com/sluice-gitops/sluice/internal/yamlsize"
)

// Limits on what kustomize makes of its input: a short kustomization can make a large result.
const (
	maxCopied = 32 << 10  // bytes that operations 'copy' of a JSON patch may add to an object
	maxOutput = 256 << 20 // bytes of the texts of all objects
	maxAffix  = 253       // bytes of a prefix, a suffix or a namespace: those of a name
)

// Without this limit, each copy of a map into itself doubles it.
func init() { jsonpatch.AccumulatedCopySizeLimit = maxCopied }

// weighParsed takes the memory for parsing a kustomization file, and refuses aliases that expand to much text.
func (f *filesystem) weighParsed(name string, content []byte) error {
	if err := f.takeParsed(content); err != nil {
		return err
	}
	if err := yamlsize.CheckAliases(content); err != nil {
		return refusal("%s cannot be read", name).Because(err)
	}
	return nil
}

// weighEncrypted takes the memory for decrypting a file, before it is known what its values are.
func (f *filesystem) weighEncrypted(name string, content []byte) error {
	mayBe := bytes.Contains(content, []byte("sops")) || bytes.Contains(content, []byte(decryptAnnotation))
	if !f.secrets.active() || !mayBe || f.secrets.plain[name] != nil {
		return nil
	}
	return f.takeParsed(content)
}

// takeParsed takes the memory for parsing a text as a whole, and gives it back but for the values that are kept.
func (f *filesystem) takeParsed(content []byte) error {
	if err := f.grow(f.needs() + yamlsize.Memory(content)); err != nil {
		return err
	}
	f.keepValues()
	return nil
}

// multiplied returns the memory in bytes for what patches add to all objects.
func (f *filesystem) multiplied() int64 {
	return int64(f.weight.objects) * (int64(f.copying)*maxCopied + int64(f.patched)*nodeBytes)
}

// mayCopy reports whether a text may be a JSON patch with an operation that copies.
func mayCopy(text []byte) bool {
	return bytes.Contains(text, []byte("from")) || bytes.IndexByte(text, '\\') >= 0
}

// copies reports whether a document is a JSON patch with an operation that copies.
func copies(doc *yaml.Node) bool {
	if doc = resolve(doc); doc.Kind != yaml.SequenceNode {
		return false
	}
	for _, operation := range doc.Content {
		if text(field(operation, "op")) == "copy" {
			return true
		}
	}
	return false
}

// checkGrowth refuses settings that make names longer than names can be, and counts patches for many objects.
func (f *filesystem) checkGrowth(name string, k *types.Kustomization) error {
	dir := path.Dir(name)
	for what, value := range map[string]string{"namePrefix": k.NamePrefix, "nameSuffix": k.NameSuffix,
		"namespace": k.Namespace} {
		if len(value) > maxAffix {
			return refusal("%s has a %s of %d bytes; names have up to %d", name, what, len(value), maxAffix)
		}
	}
	for _, list := range [][]types.Patch{k.Patches, k.PatchesJson6902} { //nolint:staticcheck // old but in use
		for _, p := range list {
			if p.Target == nil {
				continue
			}
			patch := []byte(p.Patch)
			if p.Path != "" {
				patch, _ = f.tree.ReadFile(path.Join(dir, p.Path)) // kustomize reads it later, and reports errors
			}
			f.patched += bytes.Count(patch, []byte{'\n'}) + bytes.Count(patch, []byte{','}) + 1
		}
	}
	return f.grow(f.needs())
}

// takeOutput takes the memory for the texts of an object, before they are written. Patches, replacements and other
// settings may have put one text into many fields.
func (f *filesystem) takeOutput(what string, n *yaml.Node) error {
	f.output += textOf(n)
	if f.output > maxOutput {
		return refusal("the objects have more than %d MiB; %s is one too many", maxOutput>>20, what).
			WithHint("Look for patches and replacements that put long texts into many objects")
	}
	return f.grow(f.needs())
}

// textOf returns the bytes of the texts in a value.
func textOf(n *yaml.Node) int64 {
	size := int64(len(n.Value))
	for _, c := range n.Content {
		size += textOf(c)
	}
	if n.Alias != nil {
		size += textOf(n.Alias)
	}
	return size
}
