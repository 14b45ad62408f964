package migrate

import (
	"fmt"
	"maps"
	"slices"
)

const (
	maxSchemaDepth   = 64  // of values; the API server refuses deeper objects
	maxUnknownFields = 100 // that are reported of one object
)

// unknownFields returns the paths of the fields of a value that an OpenAPI schema does not have, sorted. The API server
// would prune them.
func unknownFields(schema map[string]any, value any, path string) []string {
	var found []string
	walk(schema, value, path, 0, &found)
	slices.Sort(found)
	return slices.Compact(found)
}

func walk(schema map[string]any, value any, path string, depth int, found *[]string) {
	if schema == nil || depth > maxSchemaDepth || len(*found) >= maxUnknownFields {
		return
	}
	switch value := value.(type) {
	case map[string]any:
		walkObject(schema, value, path, depth, found)
	case []any:
		items, _ := schema["items"].(map[string]any)
		for _, item := range value {
			walk(items, item, path+"[]", depth+1, found)
		}
	}
}

func walkObject(schema, value map[string]any, path string, depth int, found *[]string) {
	properties, _ := schema["properties"].(map[string]any)
	additional, hasAdditional := schema["additionalProperties"].(map[string]any)
	open := schema["x-kubernetes-preserve-unknown-fields"] == true || schema["additionalProperties"] == true ||
		schema["x-kubernetes-embedded-resource"] == true
	for _, name := range slices.Sorted(maps.Keys(value)) {
		field := fmt.Sprintf("%s.%s", path, name)
		property, known := properties[name].(map[string]any)
		switch {
		case known:
			walk(property, value[name], field, depth+1, found)
		case hasAdditional:
			walk(additional, value[name], field, depth+1, found)
		case !open && (len(properties) > 0 || schema["type"] == "object"):
			*found = append(*found, field)
		}
	}
}
