// Package compose makes trees from parts of others, as an ArtifactGenerator declares them: copies with globs,
// merged YAML files, extracted archives, and one output for each directory that a pattern discovers. It
// creates no work tree, and does not read the files that it copies.
package compose
