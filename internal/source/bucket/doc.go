// Package bucket makes trees from the objects of a bucket. A pass costs one listing; objects whose name and ETag have
// not changed are read from a [Cache] on disk instead of being fetched again.
//
// The providers differ only in their [Remote]. All errors are faults, and none contains a credential.
package bucket
