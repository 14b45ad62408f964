// Package oci fetches artifacts from OCI registries: it resolves a reference to a digest, and reads one layer of the
// manifest with that digest. It also pushes artifacts. It does not depend on any controller.
package oci
