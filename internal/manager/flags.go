package manager

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/crypto/ssh"
)

const (
	strictGate    = "StrictPostBuildSubstitutions"
	forcePushGate = "GitForcePushBranch"
)

// gates are the feature gates of these APIs, with what each comes to here.
var gates = map[string]string{
	strictGate: "a variable of spec.postBuild that is not set and has no default is an error",
	"DisableFailFastBehavior": "an object that says that it failed is waited for until spec.timeout; otherwise " +
		"its failure is told at once",
	"AdditiveCELDependencyCheck": "a dependency with a readyExpr must be Ready, too",

	forcePushGate: "on unless it is set to false: a push branch is made anew of what is checked out; else updates " +
		"build upon what is on it",

	"OptimizedGitClones":     "no effect: nothing is fetched for a reference that did not move",
	"GitShallowClone":        "no effect: fetches are always shallow, and what they bring is kept",
	"GitSparseCheckout":      "no effect: nothing is checked out, and only files that may have changed are read",
	"GitAllBranchReferences": "no effect: only references that are used are fetched",

	"ExternalArtifact":               "no effect: Kustomizations always build from ExternalArtifacts, too",
	"ObjectLevelWorkloadIdentity":    "no effect: objects always log in as the service account that they name",
	"CancelHealthCheckOnNewRevision": "no effect: a new revision always cancels the health checks of the one before",
	"DisableConfigWatchers": "no effect: only ConfigMaps and Secrets with the label of " +
		"--watch-configs-label-selector are watched",
	"DisableStatusPollerCache": "no effect: health is watched, and nothing is polled or cached for it",
	"GroupChangeLog": "no effect: what an apply changed is one event, and no line of the log names " +
		"an object each",
	"MigrateAPIVersion": "no effect: managed fields in versions that are no longer served are " +
		"always migrated",
	"FluxStorage":               "no effect: tags are kept in files of their own kind",
	"CacheSecretsAndConfigMaps": "no effect: the contents of Secrets and ConfigMaps are never kept in memory",
}

// accepted are flags of other implementations of these APIs whose purpose does not exist here, so that their
// manifests run.
var accepted = map[string]string{
	"requeue-dependency":        "dependents wake when their dependency is ready",
	"http-retry":                "artifacts are read in the process, or asked for again by the retry of the object",
	"export-http-path-metrics":  "the paths of webhooks are secrets, and whoever calls must not make series",
	"artifact-digest-algo":      "the digest of an artifact is always its SHA-256",
	"token-cache-max-duration":  "credentials are kept until shortly before they expire, an hour at most",
	"helm-cache-max-size":       "the indexes that are in use are kept, and need little memory",
	"helm-cache-ttl":            "an index is kept by its digest",
	"helm-cache-purge-interval": "an index is kept by its digest",

	"gc-interval":                   "the files of tags are written whole, and leave nothing to collect",
	"storage-compression-threshold": "the files of tags are always compressed",
	"storage-value-log-file-size":   "there is no value log: tags are kept in one file a repository",
}

// bindAccepted registers the accepted flags, hidden.
func (o *Options) bindAccepted(f *pflag.FlagSet) {
	for name, why := range accepted {
		f.String(name, "", "accepted and not used: "+why)
		if err := f.MarkHidden(name); err != nil {
			panic(err) // the flag was registered one line above
		}
	}
}

// gate tells whether a feature gate is set.
func (o *Options) gate(name string) bool {
	on, err := strconv.ParseBool(o.FeatureGates[name])
	return err == nil && on
}

// checkGates refuses gates that nobody knows: a misspelt one would silently be off.
func (o *Options) checkGates() error {
	for name, value := range o.FeatureGates {
		if _, known := gates[name]; !known {
			return fmt.Errorf("--feature-gates sets %s, which is not known: choose from %s", name,
				strings.Join(slices.Sorted(maps.Keys(gates)), ", "))
		}
		if _, err := strconv.ParseBool(value); err != nil {
			return fmt.Errorf("--feature-gates sets %s to %q: choose true or false", name, value)
		}
	}
	return nil
}

// checkSSH refuses algorithms that the library does not know: it would leave them out in silence.
func (o *Options) checkSSH() error {
	known, insecure := ssh.SupportedAlgorithms(), ssh.InsecureAlgorithms()
	return errors.Join(
		allKnown("--ssh-hostkey-algos", o.SSHHostKeys, slices.Concat(known.HostKeys, insecure.HostKeys)),
		allKnown("--ssh-kex-algos", o.SSHKeyExchanges, slices.Concat(known.KeyExchanges, insecure.KeyExchanges)),
	)
}

func allKnown(flag string, names, known []string) error {
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("%s names %q, which is not known: choose from %s", flag, name, strings.Join(known, ", "))
		}
	}
	return nil
}
