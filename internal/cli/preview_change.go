package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/review/preview"
)

// changeFlags name a change of a repository.
type changeFlags struct {
	from, to, fromDir, toDir, clone string
	sources                         []string
	strict                          bool
	flags                           *pflag.FlagSet
	env                             *env
	pull                            *pullRequest // nil without the address of one
}

func (c *changeFlags) bind(e *env, f *pflag.FlagSet) {
	c.env, c.flags = e, f
	f.StringVar(&c.from, "from", "main", "branch, tag or commit that the change lands on")
	f.StringVar(&c.to, "to", "HEAD", "branch, tag or commit with the change")
	f.StringVar(&c.clone, "clone", ".", "directory in a clone of the repository")
	f.StringVar(&c.fromDir, "from-dir", "", "directory with the files before the change, instead of a clone")
	f.StringVar(&c.toDir, "to-dir", "", "directory with the files after the change, instead of a clone")
	f.StringSliceVar(&c.sources, "source", nil, "sources of the repository, as KIND/NAMESPACE/NAME, or "+
		"=DIRECTORY after it for a directory of the repository; default: GitRepositories with its URL and branch")
	f.BoolVar(&c.strict, "strict-substitute", true, "fail if a variable is not set and has no default")
}

// onePullRequest accepts the address of a pull request, or nothing.
func onePullRequest(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usagef("accepts the address of one pull request, received %d arguments", len(args))
	}
	return nil
}

func (c *changeFlags) validate() error {
	if (c.fromDir == "") != (c.toDir == "") {
		return usagef("--from-dir and --to-dir need each other")
	}
	return nil
}

// options returns the files before and after the change, and how their source is found. done removes what was fetched.
func (c *changeFlags) options(ctx context.Context, args []string) (o preview.Options, done func(), err error) {
	o = preview.Options{Sources: c.sources, Strict: c.strict, Namespaces: []string{c.env.Namespace()}}
	if len(args) == 1 {
		if c.pull, err = newPullRequest(args[0]); err != nil {
			return o, func() {}, err
		}
	}
	done, err = c.snapshots(ctx, &o)
	return o, done, err
}

// snapshots sets the files before and after the change, and how their source is found.
func (c *changeFlags) snapshots(ctx context.Context, o *preview.Options) (done func(), err error) {
	done = func() {}
	if c.fromDir != "" {
		if o.From, err = preview.Directory(c.fromDir); err == nil {
			o.To, err = preview.Directory(c.toDir)
		}
		if repo, err := preview.Open(c.toDir); err == nil {
			o.URLs = repo.URLs()
		}
		return done, err
	}
	var repo *preview.Repository
	from, to := c.from, c.to
	if c.pull != nil && !c.flags.Changed("to") {
		if repo, from, to, err = c.pull.fetch(ctx); err != nil {
			return done, err
		}
		done = repo.Close
		o.URLs = []string{c.pull.repository.CloneURL()}
	} else {
		if repo, err = preview.Open(c.clone); err != nil {
			return done, err
		}
		o.URLs = repo.URLs()
	}
	o.Branch = strings.TrimPrefix(strings.TrimPrefix(from, "refs/heads/"), "origin/")
	o.From, o.To, err = repo.Snapshots(from, to)
	return done, err
}

// previewCluster returns the cluster that changes are compared with.
func (e *env) previewCluster() (*preview.Cluster, error) {
	c, err := e.Client()
	if err != nil {
		return nil, err
	}
	cfg, err := e.Config()
	if err != nil {
		return nil, err
	}
	target, err := apply.NewCluster(cfg, apply.ClusterOptions{})
	if err != nil {
		return nil, cluster.WithHint(err)
	}
	return &preview.Cluster{Client: c, Config: cfg, Target: target}, nil
}

// comparing returns a RunE that ends with exit code 1 for a difference, and 2 for a failure.
func comparing(run func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		if found := (differenceError{}); err == nil || errors.As(err, &found) || errors.As(err, &usageError{}) {
			return err
		}
		return comparisonError{err}
	}
}
