// Package ui tests the web UI in a real browser, on objects that real controllers made. `make test-ui` runs it.
package ui
