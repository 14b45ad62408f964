// Package docs contains the pages of the documentation that the program prints and searches.
package docs

import "embed"

// Troubleshooting is the page about reasons, in Markdown. Package explain reads it.
//
//go:embed troubleshooting.md
var Troubleshooting string

// Pages are the pages for users, in Markdown.
//
//go:embed *.md
var Pages embed.FS
