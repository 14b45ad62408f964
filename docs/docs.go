// Package docs contains pages of the documentation that the program prints.
package docs

import _ "embed"

// Troubleshooting is the page about reasons, in Markdown. Package explain reads it.
//
//go:embed troubleshooting.md
var Troubleshooting string
