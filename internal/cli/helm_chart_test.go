package cli

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	helmaction "helm.sh/helm/v4/pkg/action"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	helmkube "helm.sh/helm/v4/pkg/kube"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// helmConfiguration is what `helm` uses in the namespace of the controllers.
func helmConfiguration(t *testing.T) *helmaction.Configuration {
	t.Helper()
	flags := genericclioptions.NewConfigFlags(true)
	flags.KubeConfig, flags.Namespace = ptr.To(testenv.Kubeconfig(t)), ptr.To(cluster.DefaultNamespace)
	cfg := helmaction.NewConfiguration(helmaction.ConfigurationSetLogger(slog.DiscardHandler))
	if err := cfg.Init(flags, cluster.DefaultNamespace, "secret"); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// loadChart returns the chart; that of an earlier release has another name of a column of GitRepositories.
func loadChart(t *testing.T, earlier bool) *chart.Chart {
	t.Helper()
	c, err := loader.LoadDir(filepath.Join("..", "..", "charts", "sluice"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range c.Templates {
		if earlier && strings.HasSuffix(f.Name, "crd-gitrepositories.source.toolkit.fluxcd.io.yaml") {
			f.Data = bytes.ReplaceAll(f.Data, []byte("name: Age\n"), []byte("name: Earlier\n"))
		}
	}
	return c
}

// columns returns the names of the columns of GitRepositories.
func columns(t *testing.T, c client.Client) string {
	t.Helper()
	d := &apiextensionsv1.CustomResourceDefinition{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "gitrepositories.source.toolkit.fluxcd.io"}, d); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, v := range d.Spec.Versions {
		for _, column := range v.AdditionalPrinterColumns {
			names = append(names, column.Name)
		}
	}
	return strings.Join(names, " ")
}

// TestHelmChart installs, upgrades and uninstalls the chart as helm does. The upgrade changes the definitions too, and
// the uninstallation keeps them with all objects.
func TestHelmChart(t *testing.T) {
	c := without(t)
	cfg := helmConfiguration(t)
	install := helmaction.NewInstall(cfg)
	install.ReleaseName, install.Namespace, install.CreateNamespace = "sluice", cluster.DefaultNamespace, true
	install.WaitStrategy = helmkube.HookOnlyStrategy
	if _, err := install.Run(loadChart(t, true), map[string]any{}); err != nil {
		t.Fatal(err)
	}
	if got := columns(t, c); !strings.Contains(got, "Earlier") {
		t.Fatalf("the earlier chart has the columns %s", got)
	}
	testenv.Eventually(t, "sluice check finds nothing wrong", func() error { return at(t, "check").check(exitOK) })
	app := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: "app"}}
	source := &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: "app",
		Finalizers: []string{reconcile.Finalizer}}}
	source.Spec.URL, source.Spec.Interval.Duration = "https://example.com/app", 1e9
	for _, o := range []client.Object{app, source} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}

	upgrade := helmaction.NewUpgrade(cfg)
	upgrade.Namespace, upgrade.WaitStrategy = cluster.DefaultNamespace, helmkube.HookOnlyStrategy
	if _, err := upgrade.Run("sluice", loadChart(t, false), map[string]any{"logLevel": "debug"}); err != nil {
		t.Fatal(err)
	}
	if got := columns(t, c); strings.Contains(got, "Earlier") || !strings.Contains(got, "Age") {
		t.Errorf("the upgrade did not change the definition: its columns are %s", got)
	}
	testenv.Eventually(t, "the upgraded controllers run", func() error { return at(t, "check").check(exitOK) })

	uninstall := helmaction.NewUninstall(cfg)
	uninstall.WaitStrategy = helmkube.HookOnlyStrategy
	if _, err := uninstall.Run("sluice"); err != nil {
		t.Fatal(err)
	}
	d := &appsv1.Deployment{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: cluster.DefaultNamespace, Name: "sluice"},
		d); !apierrors.IsNotFound(err) {
		t.Errorf("the Deployment remains: %v", err)
	}
	for _, o := range []client.Object{app, source} {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil || o.GetDeletionTimestamp() != nil {
			t.Errorf("%T was deleted: %v", o, err)
		}
	}
	at(t, "install").wants(t, exitOK, "is available") // over what Helm left
}
