// Package migrate moves a cluster from Flux to Sluice, and back.
//
// [Engine.Plan] reads the cluster and returns a [Plan]: what runs there, what would change, and what blocks the
// migration. [Engine.Run] and [Engine.Rollback] change the cluster in steps. Each step can be repeated, and the
// intent is
// in a ConfigMap before the first change, so a run that was killed continues where it stopped, or goes back.
//
// [StoredVersions] and [Files] move objects and manifests to newer API versions.
//
// The package prints nothing and knows no flags. What it needs of the commands is in the fields of [Engine].
package migrate
