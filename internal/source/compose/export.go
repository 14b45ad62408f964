package compose

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/limits/regex"
	"github.com/sluice-gitops/sluice/internal/limits/yamlsize"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// generated is the alias of the artifact itself.
const generated = "artifact"

const (
	maxInputs   = 64 << 10 // bytes of a file of inputs, and of its JSON: they are stored in a status
	maxMetadata = 16 << 10 // bytes of a NamespaceMetadata
)

// Inputs returns the mapping of the file that an output exports, by key; nil if it exports none. Built is the tree of
// the output. The error is a fault.
func Inputs(o Output, built *artifact.Tree, trees map[string]*artifact.Tree) (map[string]apiextensionsv1.JSON, error) {
	if o.Inputs == "" {
		return nil, nil
	}
	alias, name, err := split(o.Inputs)
	tree := trees[alias]
	if alias == generated {
		tree = built
	}
	var data []byte
	if err == nil {
		data, err = readSmall(tree, name, maxInputs)
	}
	var inputs map[string]apiextensionsv1.JSON
	if err == nil {
		inputs, err = parseInputs(name, data)
	}
	if err != nil {
		return nil, fault.New(meta.BuildFailedReason, "cannot export the inputs '%s'", o.Inputs).Because(err).
			WithHint("Correct the file or inputsFrom. The last artifact stays available")
	}
	return inputs, nil
}

// parseInputs parses a YAML mapping, and returns the JSON of its values.
func parseInputs(name string, data []byte) (map[string]apiextensionsv1.JSON, error) {
	parsed, err := parseMapping(name, data)
	if err != nil {
		return nil, err
	}
	if parsed == nil {
		return nil, fmt.Errorf("'%s' does not contain a mapping", name)
	}
	size := 0
	inputs := make(map[string]apiextensionsv1.JSON, len(parsed))
	for _, key := range slices.Sorted(maps.Keys(parsed)) {
		value, err := json.Marshal(parsed[key])
		if err != nil {
			return nil, fmt.Errorf("'%s': %w", name, err)
		}
		if size += len(key) + len(value); size > maxInputs { // aliases of YAML can make it larger than the file
			return nil, fmt.Errorf("the content of '%s' exceeds %d bytes", name, maxInputs)
		}
		inputs[key] = apiextensionsv1.JSON{Raw: value}
	}
	return inputs, nil
}

// readSmall reads a file of at most limit bytes.
func readSmall(tree *artifact.Tree, name string, limit int64) ([]byte, error) {
	if tree == nil {
		return nil, errors.New("no source has this alias")
	}
	info, err := tree.Stat(name)
	switch {
	case err != nil:
		return nil, missing(name, err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("'%s' is not a file", name)
	case info.Size() > limit:
		return nil, fmt.Errorf("'%s' exceeds %d bytes", name, limit)
	}
	return tree.ReadFile(name)
}

// Metadata is the labels and annotations of a Namespace.
type Metadata struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// NamespaceMetadata returns what the file of an output sets that is allowed. A file that does not exist sets nothing.
// The error is a fault.
func NamespaceMetadata(o Output, allowed extensionsv1beta1.NamespaceMetadataFile,
	trees map[string]*artifact.Tree) (Metadata, error) {
	alias, name, err := split(o.Metadata)
	var data []byte
	if err == nil {
		data, err = readSmall(trees[alias], name, maxMetadata)
	}
	if errors.Is(err, errNothingSelected) || errors.Is(err, fs.ErrNotExist) {
		return Metadata{}, nil
	}
	var m Metadata
	if err == nil {
		m, err = parseMetadata(name, data)
	}
	if err == nil {
		m.Labels, err = permitted("label", m.Labels, allowed.AllowedLabels)
	}
	if err == nil {
		m.Annotations, err = permitted("annotation", m.Annotations, allowed.AllowedAnnotations)
	}
	if err != nil {
		return Metadata{}, fault.New(meta.BuildFailedReason, "cannot use the metadata of Namespace '%s' in '%s'",
			o.Namespace, o.Metadata).Because(err).WithHint("Correct the file. The Namespace keeps its metadata")
	}
	return m, nil
}

// parseMetadata parses a NamespaceMetadata file. Fields that are not known are errors.
func parseMetadata(name string, data []byte) (Metadata, error) {
	err := yamlsize.Check(data)
	var asJSON []byte
	if err == nil {
		asJSON, err = yaml.YAMLToJSONStrict(data)
	}
	if err != nil {
		return Metadata{}, fmt.Errorf("'%s' is not YAML: %w", name, err)
	}
	var file struct {
		APIVersion string   `json:"apiVersion"`
		Kind       string   `json:"kind"`
		Metadata   Metadata `json:"metadata"`
	}
	d := json.NewDecoder(bytes.NewReader(asJSON))
	d.DisallowUnknownFields()
	if err := d.Decode(&file); err != nil {
		return Metadata{}, fmt.Errorf("'%s' is not a %s: %w", name, extensionsv1beta1.NamespaceMetadataKind, err)
	}
	if file.APIVersion != extensionsv1beta1.GroupVersion.String() ||
		file.Kind != extensionsv1beta1.NamespaceMetadataKind {
		return Metadata{}, fmt.Errorf("'%s' is '%.100s' of '%.100s', not %s of %s", name, file.Kind, file.APIVersion,
			extensionsv1beta1.NamespaceMetadataKind, extensionsv1beta1.GroupVersion)
	}
	return file.Metadata, nil
}

// permitted returns the values whose keys are allowed. A value that does not match the expression of its key is an
// error.
func permitted(what string, values, allowed map[string]string) (map[string]string, error) {
	kept := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		expression, ok := allowed[key]
		if !ok {
			continue
		}
		re, err := regex.Compile(expression)
		if err != nil {
			return nil, fmt.Errorf("the expression of %s '%s' is not valid: %w", what, key, err)
		}
		if !re.MatchString(values[key]) {
			return nil, fmt.Errorf("the value '%.100s' of %s '%s' does not match '%s'", values[key], what, key,
				expression)
		}
		kept[key] = values[key]
	}
	return kept, nil
}
