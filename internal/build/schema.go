package build

import (
	"errors"
	"sync"

	"golang.org/x/sync/semaphore"
	"sigs.k8s.io/kustomize/kyaml/openapi"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// Kustomize keeps the OpenAPI schema that says how lists are merged in package globals
// (kubernetes-sigs/kustomize#4824, #5805). Once it is loaded, builds only read it and run side by side. A
// build that brings a schema of its own would change it for all others, so it runs alone, and the schema is
// loaded anew after it.
const (
	aside int64 = 1
	alone int64 = 1 << 40
)

var (
	schema     = semaphore.NewWeighted(alone)
	loadSchema = sync.OnceFunc(load)
)

// errOwnSchema ends a build that runs beside others when it comes to a schema.
var errOwnSchema = errors.New("a kustomization brings its own schema")

func load() { openapi.SchemaForResourceType(yaml.TypeMeta{}) }

// takeSchema waits until the build may run, aside or alone.
func (f *filesystem) takeSchema(share int64) error {
	loadSchema()
	if err := schema.Acquire(f.ctx, share); err != nil {
		return err
	}
	f.share = share
	return nil
}

// giveSchema lets others run.
func (f *filesystem) giveSchema() {
	share := f.share
	f.share = 0
	if share == alone {
		openapi.ResetOpenAPI()
		load()
	}
	schema.Release(share)
}
