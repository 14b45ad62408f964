package render

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	chart "helm.sh/helm/v4/pkg/chart/v2"
)

const schemaURL = "file:///values.schema.json"

// validate checks values against the schemas of a chart and its dependencies, and writes what is wrong in Helm's words.
// Unlike Helm, it reads no file and opens no connection: what a schema refers to on another server is not checked.
func validate(problems *strings.Builder, ch *chart.Chart, values map[string]any) {
	if ch.Schema != nil {
		if err := validateOne(ch.Schema, values); err != nil {
			fmt.Fprintf(problems, "%s:\n%s", ch.Name(), err)
		}
	}
	for _, sub := range ch.Dependencies() {
		raw := values[sub.Name()]
		if raw == nil {
			continue
		}
		table, ok := raw.(map[string]any)
		if !ok {
			fmt.Fprintf(problems, "%s:\ninvalid type for values: expected object (map), got %T\n", sub.Name(), raw)
			continue
		}
		validate(problems, sub, table)
	}
}

func validateOne(text []byte, values map[string]any) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("unable to validate schema: %v", r)
		}
	}()
	schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	dropRemote(schema, identifiers(schema, map[string]bool{}))
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(nothingElse{})
	if err := compiler.AddResource(schemaURL, schema); err != nil {
		return err
	}
	validator, err := compiler.Compile(schemaURL)
	if err != nil {
		return err
	}
	if values == nil {
		values = map[string]any{}
	}
	if err := validator.Validate(values); err != nil {
		message := strings.TrimPrefix(err.Error(), "jsonschema validation failed with '"+schemaURL+"#'\n")
		return fmt.Errorf("%s\n", message)
	}
	return nil
}

// nothingElse refuses to load schemas that the chart does not contain.
type nothingElse struct{}

func (nothingElse) Load(url string) (any, error) {
	if strings.HasPrefix(url, "urn:") {
		return true, nil // any value, as Helm decides
	}
	return nil, fmt.Errorf("the schema refers to '%s', which is not part of it; only the schema itself is read", url)
}

// identifiers collects the identifiers that a schema gives to itself and its parts.
func identifiers(v any, found map[string]bool) map[string]bool {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range []string{"$id", "id"} {
			if id, ok := v[key].(string); ok {
				found[strings.TrimSuffix(id, "#")] = true
			}
		}
		for _, x := range v {
			identifiers(x, found)
		}
	case []any:
		for _, x := range v {
			identifiers(x, found)
		}
	}
	return found
}

// dropRemote removes references to other servers, so that they allow any value. The library contains the schemas of
// json-schema.org.
func dropRemote(v any, known map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		if target, ok := v["$ref"].(string); ok {
			document, _, _ := strings.Cut(target, "#")
			remote := strings.HasPrefix(document, "https://") || strings.HasPrefix(document, "http://")
			if remote && !known[document] && !strings.Contains(document, "://json-schema.org/") {
				delete(v, "$ref")
			}
		}
		if dialect, ok := v["$schema"].(string); ok && !strings.Contains(dialect, "://json-schema.org/") {
			delete(v, "$schema")
		}
		for _, x := range v {
			dropRemote(x, known)
		}
	case []any:
		for _, x := range v {
			dropRemote(x, known)
		}
	}
}
