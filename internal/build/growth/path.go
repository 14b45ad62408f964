package growth

import (
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/utils"
)

// split splits a path as kustomize does.
func split(path string) []string { return utils.SmarterPathSplitter(path, ".") }

// isKey reports whether a part of a path can only be the key of a map. A number may be one too.
func isKey(part string) bool {
	if part == "*" || part == "-" || strings.HasPrefix(part, "[") {
		return false
	}
	_, err := strconv.Atoi(part)
	return err != nil
}

// lastKey returns the index of the last part of a path that is a key, or -1.
func lastKey(path []string) int {
	for i := len(path) - 1; i >= 0; i-- {
		if isKey(path[i]) {
			return i
		}
	}
	return -1
}

// several reports whether a path may lead to more than one field of an object.
func several(path []string) bool {
	for _, part := range path {
		if part == "*" || strings.HasPrefix(part, "[") {
			return true
		}
	}
	return false
}

// contains reports whether the value at a path may contain that at another.
func contains(from, path []string) bool {
	for _, part := range path[:max(0, len(path)-1)] {
		if part == "*" || slices.Contains(from[max(0, lastKey(from)):], part) {
			return true
		}
	}
	return false
}
