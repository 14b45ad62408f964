// Package migrate tests the migration from Flux with built binaries.
package migrate
