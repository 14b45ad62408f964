package inputprovider

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash/adler32"
	"maps"
	"slices"
	"strconv"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	idKey = "id"

	maxInputs = 900 << 10 // bytes of all input sets, as the status of an object must stay below 1.5 MiB
	maxDepth  = 64        // levels of maps and lists in a value
)

// inputs are values by name: texts, lists of texts, maps of texts, and booleans.
type inputs map[string]any

// set encodes the values.
func (v inputs) set() controlplanev1.InputSet {
	set := controlplanev1.InputSet{}
	for key, value := range v {
		raw, err := json.Marshal(value)
		if err != nil {
			panic(err) // texts can always be encoded
		}
		set[key] = apiextensionsv1.JSON{Raw: raw}
	}
	return set
}

// checksum returns the ID of something that is identified by a text: its Adler-32 checksum in decimal.
func checksum(text string) string {
	return strconv.FormatUint(uint64(adler32.Checksum([]byte(text))), 10)
}

// idOf returns the ID of an input set; empty if it is not a text.
func idOf(set controlplanev1.InputSet) (id string) {
	if json.Unmarshal(set[idKey].Raw, &id) != nil {
		return ""
	}
	return id
}

func byID(sets []controlplanev1.InputSet) map[string]controlplanev1.InputSet {
	found := map[string]controlplanev1.InputSet{}
	for _, s := range sets {
		found[idOf(s)] = s
	}
	return found
}

// checkDefaults returns a fault if a default value is not valid.
func checkDefaults(values controlplanev1.InputSet) error {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if err := checkValue(values[key]); err != nil {
			return fault.New(controlplanev1.InvalidDefaultValuesReason, "'%s' in spec.defaultValues %s",
				excerpt.Chars(key, 100), err).Final()
		}
	}
	return nil
}

// checkValue returns an error, which continues a sentence, if a value cannot be decoded or is too deep.
func checkValue(value apiextensionsv1.JSON) error {
	var v any
	if err := json.Unmarshal(value.Raw, &v); err != nil {
		return fmt.Errorf("is not a JSON value")
	}
	if !isFlat(v, maxDepth) {
		return fmt.Errorf("has more than %d levels", maxDepth)
	}
	return nil
}

// isFlat reports whether a value has at most a number of levels.
func isFlat(v any, levels int) bool {
	if levels == 0 {
		return false
	}
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			if !isFlat(e, levels-1) {
				return false
			}
		}
	case []any:
		for _, e := range v {
			if !isFlat(e, levels-1) {
				return false
			}
		}
	}
	return true
}

// withDefaults adds default values, and checks the size.
func withDefaults(sets []controlplanev1.InputSet, defaults controlplanev1.InputSet) ([]controlplanev1.InputSet, error) {
	size := 0
	for i, set := range sets {
		full := maps.Clone(defaults)
		if full == nil {
			full = controlplanev1.InputSet{}
		}
		maps.Copy(full, set)
		for key, value := range full {
			size += len(key) + len(value.Raw)
		}
		if size > maxInputs {
			return nil, fault.New(controlplanev1.InvalidExportedInputsReason,
				"the input sets have more than %d KiB in total", maxInputs>>10).
				WithHint("Select fewer, or shorten spec.defaultValues").Final()
		}
		sets[i] = full
	}
	return sets, nil
}

// revisionOf returns the digest of input sets.
func revisionOf(sets []controlplanev1.InputSet) (string, error) {
	text, err := yaml.Marshal(sets)
	if err != nil {
		return "", fault.New(controlplanev1.InvalidExportedInputsReason, "cannot encode the input sets").Because(err).
			Final()
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(text)), nil
}
