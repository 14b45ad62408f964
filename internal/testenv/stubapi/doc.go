// Package stubapi is an API server that keeps objects in memory, for simulations in which the API server must not be
// the limit. It answers as kube-apiserver does where our process depends on it: versions, watches with bookmarks and
// streamed lists, field ownership of server-side apply, dry-runs, finalizers, status subresources. It neither validates
// nor sets defaults, allows everything to everyone, and answers JSON only. Only tests may import it.
package stubapi
