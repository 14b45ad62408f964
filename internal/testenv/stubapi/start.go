package stubapi

import (
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/sluice-gitops/sluice/config"
)

// Cluster is a server with an address.
type Cluster struct {
	*Server
	URL        string
	Kubeconfig string // a file
}

// Start starts a server with the definitions of all our kinds. It stops when the test ends.
func Start(tb testing.TB, latency time.Duration) *Cluster {
	tb.Helper()
	definitions, err := config.Definitions()
	if err != nil {
		tb.Fatal(err)
	}
	c := &Cluster{Server: New(definitions), Kubeconfig: filepath.Join(tb.TempDir(), "kubeconfig")}
	c.Latency = latency
	server := httptest.NewServer(c)
	tb.Cleanup(func() {
		server.CloseClientConnections() // ends watches
		server.Close()
	})
	c.URL = server.URL
	file := api.NewConfig()
	file.Clusters["stub"] = &api.Cluster{Server: c.URL}
	file.Contexts["stub"] = &api.Context{Cluster: "stub"}
	file.CurrentContext = "stub"
	if err := clientcmd.WriteToFile(*file, c.Kubeconfig); err != nil {
		tb.Fatal(err)
	}
	return c
}

// Config returns access to the server.
func (c *Cluster) Config() *rest.Config { return &rest.Config{Host: c.URL, QPS: -1} }
