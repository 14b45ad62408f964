// Package expand renders the templates of a ResourceSet with its inputs. A template may loop or allocate without end,
// so the controllers run the package in a child process; see package render.
package expand
