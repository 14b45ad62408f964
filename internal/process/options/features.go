package options

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

const (
	strictGate           = "StrictPostBuildSubstitutions"
	forcePushGate        = "GitForcePushBranch"
	waitFailedGate       = "DisableFailFastBehavior"
	additiveReadyExprKey = "AdditiveCELDependencyCheck"
	allowDNSGate         = "AllowDNSLookups"
	noDigestTrackingGate = "DisableChartDigestTracking"
	retryOnFailureGate   = "DefaultToRetryOnFailure"
	helm3DefaultsGate    = "UseHelm3Defaults"
	symlinksGate         = "FollowSymlinks"
)

// featureGates describes the feature gates of these APIs.
var featureGates = map[string]string{
	strictGate: "fail if a variable of spec.postBuild is not set and has no default",
	waitFailedGate: "wait until spec.timeout for objects that report a failure; otherwise the health check fails " +
		"at once",
	additiveReadyExprKey: "require a dependency with a readyExpr to be Ready as well",
	forcePushGate: "a push branch that has only commits of its automation is recreated from the checked out branch, " +
		"by a forced push; otherwise commits are added to it",

	allowDNSGate:         "templates of charts may resolve names by getHostByName",
	noDigestTrackingGate: "chart versions get no suffix with the digest of the OCI artifact",
	retryOnFailureGate: "failed releases are retried without remediation if they set neither a strategy nor a " +
		"remediation",
	helm3DefaultsGate: "releases that set nothing else are applied client-side, wait for workloads only, and their " +
		"hooks are not post-rendered",
	symlinksGate: "artifacts keep symlinks, and builds follow those that stay inside the source; otherwise symlinks " +
		"are left out of artifacts",

	"AdoptLegacyReleases": "no effect: releases of Helm 3 and 4 are always adopted",
	"CorrectDrift":        "no effect: spec.driftDetection.mode decides",
	"DetectDrift":         "no effect: spec.driftDetection.mode decides",
	"OOMWatch":            "no effect: charts are rendered by processes with their own memory limit",

	"OptimizedGitClones":     "no effect: nothing is fetched for a reference that did not change",
	"GitShallowClone":        "no effect: fetches are always shallow and incremental",
	"GitSparseCheckout":      "no effect: files are read without a checkout, and only those that may have changed",
	"GitAllBranchReferences": "no effect: only references in use are fetched",

	"ExternalArtifact":               "no effect: Kustomizations always support ExternalArtifacts",
	"ObjectLevelWorkloadIdentity":    "no effect: objects always log in as the service account they name",
	"CancelHealthCheckOnNewRevision": "no effect: a new revision always cancels the running health checks",
	"DisableConfigWatchers": "no effect: only ConfigMaps and Secrets that match --watch-configs-label-selector are " +
		"watched",
	"DisableStatusPollerCache":  "no effect: health is watched, not polled",
	"GroupChangeLog":            "no effect: each apply reports its changes in one event, not one log line per object",
	"MigrateAPIVersion":         "no effect: managed fields of versions that are no longer served are always migrated",
	"DirectSourceFetch":         "no effect: sources are always read from the API server or its watch, never polled",
	"FluxStorage":               "no effect: tags are stored in files of another format",
	"CacheSecretsAndConfigMaps": "no effect: the contents of Secrets and ConfigMaps are never cached",
}

// ignoredFlags are accepted so that manifests for other implementations of these APIs run. Each has the reason why it
// has no effect.
var ignoredFlags = map[string]string{
	"requeue-dependency":        "dependents are reconciled as soon as their dependency is ready",
	"http-retry":                "artifacts are read in the process, or fetched again by the retry of the object",
	"export-http-path-metrics":  "paths of webhooks are secret, and callers must not create metric series",
	"artifact-digest-algo":      "the digest of an artifact is always its SHA-256",
	"token-cache-max-duration":  "credentials are cached until shortly before they expire, at most one hour",
	"helm-cache-max-size":       "all indexes in use are cached; they need little memory",
	"helm-cache-ttl":            "indexes are cached by digest",
	"helm-cache-purge-interval": "indexes are cached by digest",

	"graceful-shutdown-timeout":     "an action that was interrupted is recovered by the next process",
	"http-timeout":                  "downloads of artifacts have a timeout of their own",
	"oom-watch-current-memory-path": "charts are rendered by processes with their own memory limit",
	"oom-watch-interval":            "charts are rendered by processes with their own memory limit",
	"oom-watch-max-memory-path":     "charts are rendered by processes with their own memory limit",
	"oom-watch-memory-threshold":    "charts are rendered by processes with their own memory limit",
	"snapshot-digest-algo":          "digests of releases are always SHA-256",

	"gc-interval":                   "files of tags are replaced as a whole and leave nothing to collect",
	"storage-compression-threshold": "files of tags are always compressed",
	"storage-value-log-file-size":   "the value log does not exist; tags are stored in one file per repository",
}

// bindIgnored registers the ignored flags, hidden.
func bindIgnored(f *pflag.FlagSet) {
	for name, why := range ignoredFlags {
		f.String(name, "", "accepted but ignored: "+why)
		if err := f.MarkHidden(name); err != nil {
			panic(err) // the flag was registered one line above
		}
	}
}

// StrictSubstitutionsEnabled returns the value of the feature gate StrictPostBuildSubstitutions if it is set, else
// that of the flag.
func (o *Options) StrictSubstitutionsEnabled() bool {
	if o.FeatureGates[strictGate] != "" {
		return o.enabled(strictGate)
	}
	return o.StrictSubstitutions
}

// WaitsForFailed reports whether health checks wait for failed objects until the timeout.
func (o *Options) WaitsForFailed() bool { return o.enabled(waitFailedGate) }

// AdditiveReadyExpr reports whether a dependency with a readyExpr must be Ready as well.
func (o *Options) AdditiveReadyExpr() bool { return o.enabled(additiveReadyExprKey) }

// AllowsDNS reports whether templates of charts may resolve names.
func (o *Options) AllowsDNS() bool { return o.enabled(allowDNSGate) }

// IgnoresChartDigests reports whether chart versions get no suffix with the digest of the OCI artifact.
func (o *Options) IgnoresChartDigests() bool { return o.enabled(noDigestTrackingGate) }

// RetriesReleases reports whether failed releases are retried without remediation by default.
func (o *Options) RetriesReleases() bool { return o.enabled(retryOnFailureGate) }

// UsesHelm3Defaults reports whether releases that set nothing else behave as those of Helm 3.
func (o *Options) UsesHelm3Defaults() bool { return o.enabled(helm3DefaultsGate) }

// ResetsPushBranch reports whether image updates may recreate a push branch by a forced push.
func (o *Options) ResetsPushBranch() bool { return o.enabled(forcePushGate) }

// FollowsSymlinks reports whether artifacts keep symlinks.
func (o *Options) FollowsSymlinks() bool { return o.enabled(symlinksGate) }

func (o *Options) enabled(gate string) bool {
	on, err := strconv.ParseBool(o.FeatureGates[gate])
	return err == nil && on
}

// Warnings returns what the options contain that has no effect, for the log. Feature gates that another implementation
// of these APIs knows must not end the start.
func (o *Options) Warnings() (warnings []string) {
	for _, name := range slices.Sorted(maps.Keys(o.FeatureGates)) {
		if _, known := featureGates[name]; !known {
			warnings = append(warnings, fmt.Sprintf("--feature-gates: unknown feature gate '%s' is ignored; "+
				"known are %s", name, strings.Join(slices.Sorted(maps.Keys(featureGates)), ", ")))
		}
	}
	return warnings
}

// checkFeatureGates rejects values that are not booleans.
func (o *Options) checkFeatureGates() error {
	for name, value := range o.FeatureGates {
		if _, err := strconv.ParseBool(value); err != nil {
			return fmt.Errorf("--feature-gates: %s is %q, choose true or false", name, value)
		}
	}
	return nil
}
