package redact

import (
	"fmt"
	"strconv"
	"strings"
)

// identities lists the fields that may identify the items of a list.
var identities = []string{"name", "key", "containerPort", "port", "mountPath", "devicePath", "topologyKey", "ip",
	"host", "path", "id"}

// namesOf returns a name for each item of a list: by the first field that all items have, with different values, or
// else by position.
func namesOf(list []any) []string {
	for _, field := range identities {
		if names := namedBy(list, field); names != nil {
			return names
		}
	}
	names := make([]string, len(list))
	for n := range list {
		names[n] = strconv.Itoa(n)
	}
	return names
}

func itemName(field string, v any) string {
	return "[" + field + "=" + strings.ToValidUTF8(fmt.Sprint(v), "") + "]"
}

func namedBy(list []any, field string) []string {
	names, seen := make([]string, 0, len(list)), map[string]bool{}
	for _, item := range list {
		m, ok := item.(map[string]any)
		if !ok || m[field] == nil || isTree(m[field]) {
			return nil
		}
		name := itemName(field, m[field])
		if seen[name] {
			return nil
		}
		seen[name] = true
		names = append(names, name)
	}
	return names
}
