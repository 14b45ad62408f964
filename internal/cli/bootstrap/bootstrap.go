// Package bootstrap makes a cluster manage itself from a git repository or an OCI artifact: it commits or pushes the
// manifests of the controllers and a sync, installs them, gives the cluster a login, and waits until the cluster
// reconciles itself.
//
// A bootstrap is a list of steps. Each step first looks what is done already, so that a run after a failure continues,
// and a run without changes changes nothing.
package bootstrap

import (
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Names of the files in the directory of the manifests. They are the names that Flux uses.
const (
	ComponentsFile    = "gotk-components.yaml"
	SyncFile          = "gotk-sync.yaml"
	KustomizationFile = "kustomization.yaml"
)

// Options say what to bootstrap.
type Options struct {
	// Namespace of the controllers. It is also the name of the directory, of the source and of the Kustomization.
	Namespace string
	Path      string // of the cluster's directory in the repository; "" for the root, see [CleanPath]
	Branch    string
	Interval  time.Duration

	RecurseSubmodules bool
	SecretName        string // of the cluster's login
	RotateKey         bool   // replace the key or token that the bootstrap created
	Force             bool   // bootstrap a cluster again that manages itself from another path

	Components []byte // manifests of the controllers
	// WithRemoteBases returns Components for a repository whose kustomizations refer to bases by URL.
	WithRemoteBases func() ([]byte, error)
	Commit          CommitOptions
	Repository      Repository
	Artifact        *Artifact // in place of Repository, Branch and Commit; nil for a git repository
	Login           Login     // of the cluster

	// Install applies the objects of the controllers, and waits until they run.
	Install       func(ctx context.Context, objects []*unstructured.Unstructured) error
	AlwaysInstall bool // also if the cluster manages itself
	Client        client.Client
	Timeout       time.Duration // of each step that does not ask a person
	Output        Output
	// AfterStep is called after each step; its error ends the run. Nil in production.
	AfterStep func(step string) error
}

// CommitOptions describe the commits.
type CommitOptions struct {
	Author   git.Signature
	Appendix string // added to the message
	// Sign signs commits; see [git.NewCommit]. Commits are not signed when nil.
	Sign func(payload []byte) (string, error)
}

// Output shows progress to a person, and asks questions.
type Output interface {
	Step(format string, args ...any)
	Done(format string, args ...any)
	Warn(format string, args ...any)
	Live(format string, args ...any)
	Confirm(question string) bool
}

// step is a step of a bootstrap.
type step struct {
	name string
	run  func(*run, context.Context) error
	asks bool // a person may take time to answer
}

// steps are the steps in their order.
var steps = []step{
	{name: "cluster", run: (*run).inspect},
	{name: "repository", run: (*run).prepareRepository},
	{name: "commit", run: (*run).commit},
	{name: "install", run: (*run).install},
	{name: "login", run: (*run).storeLogin, asks: true},
	{name: "sync", run: (*run).applySync},
	{name: "wait", run: (*run).wait},
	{name: "cleanup", run: (*run).cleanUp},
}

// artifactSteps are the steps with an artifact in place of a repository.
var artifactSteps = []step{
	{name: "cluster", run: (*run).inspect},
	{name: "push", run: (*run).pushArtifact},
	{name: "install", run: (*run).install},
	{name: "login", run: (*run).storeArtifactSecrets},
	{name: "sync", run: (*run).applySync},
	{name: "wait", run: (*run).wait},
}

// StepNames returns the names of the steps for a git repository, in their order.
func StepNames() []string {
	names := make([]string, len(steps))
	for i, s := range steps {
		names[i] = s.name
	}
	return names
}

// run is one run of a bootstrap.
type run struct {
	Options
	view    *git.View
	state   state
	push    git.Remote // to commit to
	syncURL string     // that the cluster reads
	commits string     // the hash of the branch with the manifests
	objects []*unstructured.Unstructured
	keep    string // the public key, or the username of the deploy token, that the cluster uses
}

// Run bootstraps a cluster. Run it again after an error, or to change options: it continues, and changes only what
// differs.
func Run(ctx context.Context, o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "sluice-bootstrap-")
	if err != nil {
		return fmt.Errorf("cannot create a directory for the repository: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	r := &run{Options: o, view: git.NewMirrors(dir).View(git.WriterPrefix + "bootstrap")}
	all := steps
	if o.Artifact != nil {
		all = artifactSteps
	}
	for _, s := range all {
		err := r.do(ctx, s)
		if err == nil && o.AfterStep != nil {
			err = o.AfterStep(s.name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// do runs a step within the timeout.
func (r *run) do(ctx context.Context, s step) error {
	if !s.asks {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.Timeout)
		defer cancel()
	}
	return s.run(r, ctx)
}

func (o *Options) check() error {
	if err := git.CheckRef("refs/heads/" + o.Branch); err != nil && o.Artifact == nil {
		return failed("'%s' is not the name of a branch", o.Branch).WithHint("Set --branch to the name of a branch, " +
			"such as main").Final()
	}
	clean, err := CleanPath(o.Path)
	o.Path = clean
	return err
}

// CleanPath returns a path in a repository without a leading "./" or "/", and "" for the root. It refuses paths that
// lead out of the repository.
func CleanPath(p string) (string, error) {
	if slices.Contains(strings.FieldsFunc(p, func(r rune) bool { return r == '/' || r == '\\' }), "..") ||
		strings.ContainsAny(p, "\\\x00\n") {
		return "", failed("path '%s' leads out of the repository", strings.ToValidUTF8(p, "?")).
			WithHint("Use a path in the repository, such as clusters/production").Final()
	}
	return strings.TrimPrefix(path.Clean("/"+p), "/"), nil
}

// dir returns the directory of the manifests.
func (o *Options) dir() string { return path.Join(o.Path, o.Namespace) }

// specPath returns spec.path of the Kustomization.
func (o *Options) specPath() string { return "./" + o.Path }

// title names the keys and tokens that a host issues for this cluster.
func (o *Options) title() string {
	return strings.Join([]string{o.Namespace, o.Branch, o.specPath()}, "-")
}

func failed(format string, args ...any) *fault.Fault {
	return fault.New(meta.FailedReason, format, args...)
}
