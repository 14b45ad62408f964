// Package web contains the built front end of the web UI. `make web` builds it from src/.
package web

import (
	"embed"
	"io/fs"
)

//go:embed all:dist
var dist embed.FS

// Pages returns the files of the front end, with index.html at the root.
func Pages() fs.FS {
	pages, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) // the embedded directory has a fixed name
	}
	return pages
}
