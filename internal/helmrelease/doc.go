// Package helmrelease releases Helm charts, and keeps the releases as declared. What to do next is decided from the
// releases that Helm stored in the cluster, so a process that was killed leaves nothing that the next one cannot
// continue.
package helmrelease
