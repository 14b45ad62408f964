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
	if err := yamlsize.Check(content); err != nil {
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

// objects returns the number of objects and patches that were read.
func (f *filesystem) objects() int { return f.weight.objects + f.small }

// multiplied returns the memory in bytes for what patches add to all objects.
func (f *filesystem) multiplied() int64 {
	return int64(f.objects()) * (int64(f.copying)*maxCopied + int64(f.patched)*nodeBytes)
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
	if err := f.countPatches(dir, k); err != nil {
		return err
	}
	if err := f.checkEffort(name); err != nil {
		return err
	}
	fields := defaultFields
	for _, file := range k.Configurations {
		content := f.peek(path.Join(dir, file))
		fields += bytes.Count(content, []byte("path"))
		if bytes.Contains(content, []byte("create")) {
			f.patched += bytes.Count(content, []byte{'/'}) // maps of paths that are created
		}
	}
	f.patched += (len(k.CommonLabels) + len(k.CommonAnnotations)) * fields //nolint:staticcheck // old but in use
	for _, l := range k.Labels {
		f.patched += len(l.Pairs) * (fields + len(l.FieldSpecs))
	}
	return f.grow(f.needs())
}

// defaultFields is the number of fields of an object in which kustomize sets labels, at most.
const defaultFields = 6

// takeOutput takes the memory for the values and texts of an object, before they are written. Patches, replacements and
// other settings may have put one value into many fields.
func (f *filesystem) takeOutput(what string, n *yaml.Node) error {
	text, values := sizeOf(n)
	f.output += text
	f.outputValues += values
	if f.output > maxOutput {
		return refusal("the objects have more than %d MiB; %s is one too many", maxOutput>>20, what).
			WithHint("Look for patches and replacements that put long texts into many objects")
	}
	return f.grow(f.needs())
}

// sizeOf returns the bytes of the texts in a value, and the number of its values.
func sizeOf(n *yaml.Node) (text int64, values int) {
	text, values = int64(len(n.Value)), 1
	for _, c := range n.Content {
		below, more := sizeOf(c)
		text, values = text+below, values+more
	}
	if n.Alias != nil {
		below, more := sizeOf(n.Alias)
		text, values = text+below, values+more
	}
	return text, values
}
