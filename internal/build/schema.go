package build

import (
	"errors"
	"sync"

	"golang.org/x/sync/semaphore"
	"sigs.k8s.io/kustomize/kyaml/openapi"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// Kustomize keeps the OpenAPI schema, which defines how lists are merged, in package globals
// (kubernetes-sigs/kustomize#4824, #5805). After it is loaded, builds only read it and run concurrently. A
// build with its own schema would change it for all other builds, so it runs alone, and the built-in schema
// is reloaded afterwards.
const (
	aside int64 = 1
	alone int64 = 1 << 40
)

var (
	schema     = semaphore.NewWeighted(alone)
	loadSchema = sync.OnceFunc(load)
)

// errOwnSchema ends a concurrent build that finds a kustomization with its own schema.
var errOwnSchema = errors.New("a kustomization has its own schema")

func load() { openapi.SchemaForResourceType(yaml.TypeMeta{}) }

// takeSchema waits until the build may run: with other builds (aside), or exclusively (alone).
func (f *filesystem) takeSchema(share int64) error {
	loadSchema()
	if err := schema.Acquire(f.ctx, share); err != nil {
		return err
	}
	f.share = share
	return nil
}

// giveSchema releases the schema for other builds.
func (f *filesystem) giveSchema() {
	share := f.share
	f.share = 0
	if share == alone {
		openapi.ResetOpenAPI()
		load()
	}
	schema.Release(share)
}
