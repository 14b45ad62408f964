package cli

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cli/renderer"
	"github.com/sluice-gitops/sluice/internal/model/kind"
)

// renderCommand is `sluice render`.
type renderCommand struct {
	*env
	exec, as                  string
	once                      bool
	execTimeout               time.Duration
	server, caFile, tokenFile string
}

func newRenderCommand(e *env) *cobra.Command {
	r := &renderCommand{env: e}
	c := &cobra.Command{
		Use:   "render [KIND/]NAME[.NAMESPACE]",
		Short: "Run a command over each revision of a source, and publish what it makes",
		Long: `Run a command over each revision of a source, and publish what it makes as an
ExternalArtifact, which Kustomizations build from as from any source.

The command runs by /bin/sh, where you run sluice, in a directory that has only
the files of the source. $SLUICE_REVISION is the revision. What it writes to the
directory $SLUICE_OUTPUT is the artifact, or else the manifests that it prints.
If it fails, the last artifact stays, and the ExternalArtifact has the last
lines of its standard error.

Run it in the cluster, with a ServiceAccount that may get and watch the source,
get and create ExternalArtifacts, and patch externalartifacts/status.`,
		Example: `  sluice render app --exec 'cue export ./... --out text -e yaml' --as app-rendered
  sluice render oci/charts.team-a --as manifests --once \
    --exec 'jsonnet -y main.jsonnet'`,
		Args: exactlyOne,
		RunE: func(cmd *cobra.Command, args []string) error { return r.run(cmd.Context(), args[0]) },
	}
	f := c.Flags()
	f.StringVar(&r.exec, "exec", "", "command for /bin/sh")
	f.StringVar(&r.as, "as", "", "name of the ExternalArtifact in --namespace; created if it does not exist")
	f.BoolVar(&r.once, "once", false, "render the current revision and end, such as in a Job")
	f.DurationVar(&r.execTimeout, "exec-timeout", 5*time.Minute, "maximum duration of a run of the command")
	f.StringVar(&r.server, "artifact-server", "http://source-controller."+cluster.DefaultNamespace+".svc",
		"URL of the artifact server, which gets the token")
	f.StringVar(&r.caFile, "artifact-ca-file", "", "PEM file with the CA certificate of the artifact server")
	f.StringVar(&r.tokenFile, "artifact-token-file", "",
		"file with the token for the artifact server (default: the one for the Kubernetes API)")
	markRequired(c, "exec", "as")
	return c
}

func (r *renderCommand) run(ctx context.Context, source string) error {
	render, err := r.renderer(source)
	if err != nil {
		return err
	}
	if !r.once {
		return render.Run(ctx)
	}
	ctx, cancel := r.WithTimeout(ctx)
	defer cancel()
	return render.Once(ctx)
}

func (r *renderCommand) renderer(source string) (*renderer.Renderer, error) {
	of, key, err := r.source(source)
	if err != nil {
		return nil, err
	}
	server, err := url.Parse(r.server)
	if err != nil || server.Host == "" || server.Scheme != "https" && server.Scheme != "http" {
		return nil, usagef("invalid --artifact-server %q: use http://HOST or https://HOST", r.server)
	}
	if r.execTimeout <= 0 {
		return nil, usagef("invalid --exec-timeout %s: use a duration above 0", r.execTimeout)
	}
	cl, err := r.Client()
	if err != nil {
		return nil, err
	}
	cfg, err := r.Config()
	if err != nil {
		return nil, err
	}
	token := r.token(cfg)
	artifacts, err := r.artifacts(server, token)
	if err != nil {
		return nil, err
	}
	secrets := func() []string {
		current, _ := token() // reported when it is sent
		return []string{current}
	}
	return &renderer.Renderer{
		Kind: of, Source: key, As: types.NamespacedName{Namespace: r.Namespace(), Name: r.as},
		Command: &renderer.Command{Text: r.exec, Environ: os.Environ(), Timeout: r.execTimeout, Log: r.Err,
			Secrets: secrets},
		Cluster: cl, Artifacts: &artifact.Fetcher{Client: artifacts},
		Publisher: &artifact.Publisher{Server: server, Client: artifacts}, Output: r.UI,
	}, nil
}

// source parses the argument that names the source.
func (r *renderCommand) source(text string) (*kind.Kind, types.NamespacedName, error) {
	word, name, ok := strings.Cut(text, "/")
	if !ok {
		word, name = sourcev1.GitRepositoryKind, text
	}
	of := kind.ByWord(word)
	if of == nil || sourcev1.NewSource(of.Name()) == nil {
		return nil, types.NamespacedName{}, usagef("%q is not a kind of source with an artifact: use GitRepository, "+
			"OCIRepository, Bucket, HelmChart or ExternalArtifact", word)
	}
	name, namespace, _ := strings.Cut(name, ".")
	if name == "" {
		return nil, types.NamespacedName{}, usagef("the name is missing in %q", text)
	}
	return of, types.NamespacedName{Namespace: cmp.Or(namespace, r.Namespace()), Name: name}, nil
}

// token returns a function that reads the token for the artifact server. Kubernetes renews that of a pod.
func (r *renderCommand) token(cfg *rest.Config) func() (string, error) {
	file := cmp.Or(r.tokenFile, cfg.BearerTokenFile)
	if file == "" {
		return func() (string, error) { return cfg.BearerToken, nil }
	}
	return func() (string, error) {
		token, err := readFile("artifact-token-file", file)
		return strings.TrimSpace(token), err
	}
}

// artifacts returns the client for artifacts. It sends the token to the artifact server, and to no other.
func (r *renderCommand) artifacts(server *url.URL, token func() (string, error)) (*http.Client, error) {
	options := artifact.ClientOptions{Hosts: []string{server.Host}, Token: token}
	if r.caFile != "" {
		ca, err := readFile("artifact-ca-file", r.caFile)
		if err != nil {
			return nil, err
		}
		options.CA = []byte(ca)
	}
	c, err := artifact.NewClient(options)
	if err != nil {
		return nil, usageError{err}
	}
	return artifact.AtServer(c, server), nil
}
