package localrelease

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"

	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/helmrelease"
	"github.com/sluice-gitops/sluice/internal/model/lineage"
	"github.com/sluice-gitops/sluice/internal/offline/lookup"
)

// chart returns the chart, and its archive.
func (b *Builder) chart(ctx context.Context, obj *helmv2.HelmRelease) (*chart.Chart, []byte, error) {
	switch {
	case b.options.Chart != nil:
		return helmrelease.LoadChart(ctx, b.options.Chart, b.options.Revision)
	case b.options.Path != "":
		return localChart(b.options.Path)
	}
	refs := lineage.Sources(obj)
	if len(refs) == 0 {
		return nil, nil, errors.New("its source does not exist yet. Name a local chart with --path")
	}
	key := types.NamespacedName{Namespace: obj.Namespace, Name: refs[0].Name}
	if refs[0].Namespace != "" {
		key.Namespace = refs[0].Namespace
	}
	tree, revision, err := Fetch(ctx, *b.cluster, refs[0].Kind, key)
	if err != nil {
		return nil, nil, fmt.Errorf("%w. Name a local chart with --path", err)
	}
	return helmrelease.LoadChart(ctx, tree, Tracked(refs[0].Kind, revision))
}

// Tracked returns a revision if the kind of its source makes it part of the version of a chart; otherwise "".
func Tracked(kind, revision string) string {
	if kind == sourcev1.OCIRepositoryKind || kind == sourcev1.ExternalArtifactKind {
		return revision
	}
	return ""
}

// Fetch reads the artifact of a source through the API server, and returns its revision.
func Fetch(ctx context.Context, c Cluster, kind string, key types.NamespacedName) (*artifact.Tree, string, error) {
	source := sourcev1.NewSource(kind)
	if source == nil {
		return nil, "", fmt.Errorf("sources of kind '%s' are not supported", kind)
	}
	what := fmt.Sprintf("%s '%s'", kind, key)
	if err := c.Client.Get(ctx, key, source.(client.Object)); err != nil {
		return nil, "", lookup.Explain("cannot get "+what, err)
	}
	a := source.GetArtifact()
	if a == nil {
		return nil, "", fmt.Errorf("%s has no artifact yet", what)
	}
	fetcher, err := NewFetcher(c.Config)
	if err != nil {
		return nil, "", err
	}
	tree, err := fetcher.Fetch(ctx, artifact.Key{Kind: kind, Namespace: key.Namespace, Name: key.Name}, *a)
	if err != nil {
		return nil, "", fmt.Errorf("cannot fetch the artifact of %s through the API server: %w", what, err)
	}
	return tree, a.Revision, nil
}

// NewFetcher returns a fetcher that reads the Services of a cluster through its API server.
func NewFetcher(cfg *rest.Config) (*artifact.Fetcher, error) {
	transport, err := newServiceTransport(cfg)
	if err != nil {
		return nil, err
	}
	return &artifact.Fetcher{Client: &http.Client{Transport: transport}}, nil
}

// localChart loads a chart from a directory or an archive.
func localChart(name string) (*chart.Chart, []byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, nil, err
	}
	if info.IsDir() {
		ch, err := loader.LoadDir(name)
		if err != nil {
			return nil, nil, fmt.Errorf("cannot load the chart in %s: %w", name, err)
		}
		dir, err := os.MkdirTemp("", "sluice-chart-")
		if err != nil {
			return nil, nil, err
		}
		defer os.RemoveAll(dir)
		if name, err = chartutil.Save(ch, dir); err != nil {
			return nil, nil, err
		}
	}
	archive, err := os.ReadFile(name)
	if err != nil {
		return nil, nil, err
	}
	ch, err := loader.LoadArchive(bytes.NewReader(archive))
	if err != nil {
		return nil, nil, fmt.Errorf("cannot load the chart in %s: %w", name, err)
	}
	return ch, archive, nil
}

// serviceTransport sends requests to Services of the cluster through the API server, and others directly.
type serviceTransport struct {
	server *url.URL
	proxy  http.RoundTripper // with the credentials of the user
}

func newServiceTransport(cfg *rest.Config) (*serviceTransport, error) {
	proxy, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, err
	}
	server, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, err
	}
	server.Path = cmp.Or(server.Path, "/") // else JoinPath returns a relative path, which no server accepts
	return &serviceTransport{server: server, proxy: proxy}, nil
}

// RoundTrip implements [http.RoundTripper].
func (t *serviceTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	parts := strings.Split(r.URL.Hostname(), ".")
	if len(parts) < 3 || parts[2] != "svc" {
		return http.DefaultTransport.RoundTrip(r)
	}
	name := parts[0]
	if port := r.URL.Port(); port != "" {
		name += ":" + port
	}
	through := r.Clone(r.Context())
	through.URL = t.server.JoinPath("api/v1/namespaces", parts[1], "services", name, "proxy",
		path.Clean("/"+r.URL.Path))
	through.Host = ""
	return t.proxy.RoundTrip(through)
}
