// Package helm finds, fetches, verifies and packages Helm charts from repositories over HTTP, from OCI registries, and
// from trees. It does not trust its input: sizes and counts are bounded, and digests are verified. It does
// not depend on any controller.
package helm
