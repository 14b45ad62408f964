package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
	"k8s.io/client-go/discovery"

	"github.com/sluice-gitops/sluice/internal/cli/cluster"
)

const devVersion = "dev"

// shortCommit is the number of characters of the commit in the version of a build from source.
const shortCommit = 12

// Variables that hack/internal/compile sets. A build by `go build` has a commit and a date if Go recorded them.
var (
	Version = devVersion
	Commit  = ""
	Date    = "" // of the commit, in RFC 3339
)

// versionCommand is `sluice version`.
type versionCommand struct {
	*env
	clientOnly bool
	output     string
}

func newVersionCommand(e *env) *cobra.Command {
	o := &versionCommand{env: e}
	c := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of sluice and of the cluster",
		Example: `  sluice version --client
  sluice version -o json`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return o.run() },
	}
	c.Flags().BoolVar(&o.clientOnly, "client", false, "show only the version of sluice")
	addOutput(c, c.Flags(), &o.output, machineFormats...)
	return c
}

func (o *versionCommand) run() error {
	if err := optionalOneOf("output", o.output, machineFormats...); err != nil {
		return err
	}
	info := map[string]string{"sluice": fullVersion(), "go": runtime.Version()}
	commit, date := origin()
	if commit != "" {
		info["commit"] = commit
	}
	if date != "" {
		info["date"] = date
	}
	if !o.clientOnly {
		version, err := o.serverVersion()
		if err != nil {
			return err
		}
		info["kubernetes"] = version
	}
	if o.output != "" {
		return o.printAs(o.output, info)
	}
	for _, k := range []string{"sluice", "commit", "date", "kubernetes", "go"} {
		if info[k] != "" {
			fmt.Fprintf(o.Out, "%s: %s\n", k, info[k])
		}
	}
	return nil
}

func (o *versionCommand) serverVersion() (string, error) {
	cfg, err := o.Config()
	if err != nil {
		return "", err
	}
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return "", err
	}
	v, err := d.ServerVersion()
	if err != nil {
		return "", cluster.Explain("cannot get the version of the cluster (use --client to skip it)", err)
	}
	return v.GitVersion, nil
}

// fullVersion returns the version, and for a build from source its commit.
func fullVersion() string {
	if commit, _ := origin(); Version == devVersion && commit != "" {
		return Version + "+" + commit[:min(shortCommit, len(commit))]
	}
	return Version
}

// origin returns the commit that the binary was built from and its date, or "" if they are not known.
func origin() (commit, date string) {
	info, ok := debug.ReadBuildInfo()
	if Commit != "" || !ok {
		return Commit, Date
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			commit = s.Value
		case "vcs.time":
			date = s.Value
		}
	}
	return commit, date
}
