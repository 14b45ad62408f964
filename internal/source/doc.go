// Package source contains the controllers of the source kinds. The kinds that have an artifact supply a
// [Fetcher], which one [Controller] runs for all of them: resolve the revision, ask the gates, fetch, store.
//
// Fetching, verifying and packaging are implemented in the packages below. This package only decides in which order
// they are used, and writes conditions and status.
package source
