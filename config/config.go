// Package config holds the manifests that `sluice install` applies. The definitions and the role are generated.
package config

import "embed"

// Files are crd/, rbac/ and manager/.
//
//go:embed crd rbac manager
var Files embed.FS
