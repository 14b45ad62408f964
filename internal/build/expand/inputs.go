package expand

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/adler32"
	"strconv"
	"strings"
	"unicode"
)

// Permute is the strategy that combines each input of a provider with each input of the others. With any other one,
// the inputs are concatenated.
const Permute = "Permute"

// maxPermutations is the maximum number of combinations of inputs.
const maxPermutations = 10_000

// Provider is an object that has inputs. The providers of a request are sorted.
type Provider struct {
	APIVersion, Kind, Namespace, Name string
	Inputs                            json.RawMessage // an array of objects
}

// inputSet is what `inputs` returns in templates.
type inputSet map[string]any

// String names the input set in messages.
func (s inputSet) String() string {
	if id, ok := s["id"]; ok {
		return fmt.Sprintf(" with the inputs of id '%v'", id)
	}
	return ""
}

// Sets returns the input sets of a request, in the order of [Result.From].
func Sets(q Request) ([]map[string]any, error) {
	sets, err := combine(q)
	out := make([]map[string]any, len(sets))
	for i, s := range sets {
		out[i] = s
	}
	return out, err
}

// combine returns the input sets that the templates are rendered with.
func combine(q Request) ([]inputSet, error) {
	var names []string
	var inputs [][]inputSet
	for _, p := range q.Providers {
		sets, err := p.sets()
		if err != nil {
			return nil, err
		}
		names, inputs = append(names, p.Name), append(inputs, sets)
	}
	if q.Strategy == Permute {
		return permute(names, inputs, q.IncludeEmpty)
	}
	var all []inputSet
	for _, sets := range inputs {
		all = append(all, sets...)
	}
	return all, nil
}

// sets returns the inputs of a provider. Each names its provider.
func (p Provider) sets() ([]inputSet, error) {
	if len(p.Inputs) == 0 {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(p.Inputs))
	d.UseNumber()
	var sets []inputSet
	if err := d.Decode(&sets); err != nil {
		return nil, fmt.Errorf("the inputs of %s '%s' are invalid: %w", p.Kind, p.Name, err)
	}
	for i, s := range sets {
		if s == nil {
			s = inputSet{}
		}
		for k, v := range s {
			s[k] = plain(v)
		}
		s["provider"] = map[string]any{"apiVersion": p.APIVersion, "kind": p.Kind, "namespace": p.Namespace,
			"name": p.Name}
		sets[i] = s
	}
	return sets, nil
}

// plain returns a decoded value whose numbers are int64 or float64.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			v[k] = plain(x)
		}
	case []any:
		for i, x := range v {
			v[i] = plain(x)
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, err := v.Float64()
		if err != nil {
			return v.String()
		}
		return f
	}
	return v
}

// permute returns the product of the inputs of providers: each set has the inputs by the name of their provider, and an
// ID of the combination.
func permute(providers []string, inputs [][]inputSet, includeEmpty bool) ([]inputSet, error) {
	var names []string
	var sets [][]inputSet
	seen, count := map[string]string{}, 1
	for i, of := range inputs {
		if len(of) == 0 && !includeEmpty {
			continue
		}
		name, err := normalize(providers[i])
		if err != nil {
			return nil, err
		}
		if other, ok := seen[name]; ok {
			return nil, fmt.Errorf("the providers '%s' and '%s' have the same name in templates, '%s': rename one",
				other, providers[i], name)
		}
		seen[name] = providers[i]
		names, sets = append(names, name), append(sets, of)
		if count *= len(of); count > maxPermutations {
			return nil, fmt.Errorf("the inputs have more than %d combinations", maxPermutations)
		}
	}
	if len(names) == 0 || count == 0 {
		return nil, nil
	}
	all := make([]inputSet, 0, count)
	index := make([]int, len(names))
	for range count {
		all = append(all, combination(names, sets, index))
		for i := len(index) - 1; i >= 0; i-- {
			if index[i]++; index[i] < len(sets[i]) {
				break
			}
			index[i] = 0
		}
	}
	return all, nil
}

// combination returns the input set of one combination.
func combination(names []string, sets [][]inputSet, index []int) inputSet {
	set := inputSet{}
	var parts []string
	for i, name := range names {
		set[name] = map[string]any(sets[i][index[i]])
		parts = append(parts, name+"="+strconv.Itoa(index[i]))
	}
	set["id"] = strconv.FormatUint(uint64(adler32.Checksum([]byte(strings.Join(parts, "/")))), 10)
	return set
}

// normalize returns the name of a provider as templates can write it: words of a-z and 0-9, joined by underscores.
func normalize(name string) (string, error) {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		switch {
		case unicode.IsSpace(r), unicode.IsPunct(r):
			b.WriteByte('_')
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			b.WriteRune(r)
		}
	}
	words := strings.FieldsFunc(b.String(), func(r rune) bool { return r == '_' })
	if len(words) == 0 {
		return "", fmt.Errorf("the name of provider '%s' has no letter or digit that templates can use", name)
	}
	return strings.Join(words, "_"), nil
}
