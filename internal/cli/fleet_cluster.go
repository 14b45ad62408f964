package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cli/install"
	"github.com/sluice-gitops/sluice/internal/fleet"
	fleetclient "github.com/sluice-gitops/sluice/internal/fleet/client"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
)

// membership is what the commands that register a cluster at a hub know.
type membership struct {
	*env
	hub, name     string
	labels        map[string]string
	reads, sso    bool
	fetchKeys     bool
	subject       string
	hubNamespace  string
	hubKubeconfig string
	hubContext    string
	export        bool
}

func newClusterCommand(e *env) *cobra.Command {
	c := newGroup("cluster", "Register a cluster at a hub, and remove it",
		"  sluice cluster join --hub https://hub.example.com --name edge-7 \\\n    --hub-context hub --context edge-7")
	c.AddCommand(newJoinCommand(e), newLeaveCommand(e), newRotateCommand(e))
	return c
}

func newJoinCommand(e *env) *cobra.Command {
	m := &membership{env: e}
	c := &cobra.Command{
		Use: "join", Short: "Register the cluster at a hub, and let it report",
		Long: `Register the cluster at a hub: a Secret in the hub's cluster says by which keys
the tokens of this cluster are signed. Then let the controllers of this cluster
report to the hub. Running the command again with the same flags changes
nothing.

--context and --namespace are for the controllers of the cluster that joins,
--hub-context and --hub-namespace for the hub.`,
		Example: `  sluice cluster join --hub https://hub.example.com --name edge-7 \
    --labels region=eu,stage=production --context edge-7 --hub-context hub
  sluice cluster join --hub https://hub.example.com --name edge-7 --export`,
		Args: noArgs, RunE: e.bounded(func(ctx context.Context, _ []string) error { return m.join(ctx) }),
	}
	f := c.Flags()
	m.bind(f)
	m.bindKeys(f)
	f.StringVar(&m.hub, "hub", "", "URL of the hub")
	f.StringToStringVar(&m.labels, "labels", nil, "labels of the cluster, such as region=eu,stage=production")
	f.BoolVar(&m.reads, "reads", true, "let gates of the cluster ask how far other clusters are")
	f.BoolVar(&m.sso, "sso", false,
		"log people in who are logged in at the hub by OIDC: the cluster gets their ID tokens, for its client at "+
			"--ui-oidc-issuer")
	f.BoolVar(&m.export, "export", false, "print the Secret for the hub, and change nothing")
	return c
}

func newLeaveCommand(e *env) *cobra.Command {
	m := &membership{env: e}
	c := &cobra.Command{
		Use: "leave", Short: "Let the cluster no longer report, and remove it from its hub",
		Long: `Let the controllers of this cluster no longer report, and delete the Secret that
registers the cluster at the hub. What the cluster reconciles does not change.`,
		Example: `  sluice cluster leave --name edge-7 --context edge-7 --hub-context hub`,
		Args:    noArgs, RunE: e.bounded(func(ctx context.Context, _ []string) error { return m.leave(ctx) }),
	}
	m.bind(c.Flags())
	return c
}

func newRotateCommand(e *env) *cobra.Command {
	m := &membership{env: e}
	c := &cobra.Command{
		Use: "rotate", Short: "Tell the hub the current keys of the cluster",
		Long: `Write the current public keys of the cluster's API server into the Secret that
registers it at the hub. Run it after the API server has got new signing keys.`,
		Example: `  sluice cluster rotate --name edge-7 --context edge-7 --hub-context hub`,
		Args:    noArgs, RunE: e.bounded(func(ctx context.Context, _ []string) error { return m.rotate(ctx) }),
	}
	m.bind(c.Flags())
	m.bindKeys(c.Flags())
	return c
}

func (m *membership) bind(f *pflag.FlagSet) {
	f.StringVar(&m.name, "name", "", "name of the cluster at the hub")
	f.StringVar(&m.hubContext, "hub-context", "", "context of the kubeconfig for the hub's cluster")
	f.StringVar(&m.hubKubeconfig, "hub-kubeconfig", "", "kubeconfig for the hub's cluster (default: the same)")
	f.StringVar(&m.hubNamespace, "hub-namespace", cluster.DefaultNamespace, "namespace of the hub")
}

func (m *membership) bindKeys(f *pflag.FlagSet) {
	f.BoolVar(&m.fetchKeys, "fetch-keys", false,
		"let the hub read the keys at the URL of the issuer, which it must reach, instead of having them in the Secret")
	f.StringVar(&m.subject, "subject", "",
		"user that reports (default: as registered, or the ServiceAccount of the Deployment with kustomize-controller)")
}

func (m *membership) check() error {
	if err := fleet.CheckName(m.name); err != nil {
		return usagef("--name: %v", err)
	}
	if m.hubContext == "" && m.hubKubeconfig == "" && !m.export {
		return usagef("--hub-context or --hub-kubeconfig must say how to reach the hub's cluster")
	}
	return nil
}

func (m *membership) join(ctx context.Context) error {
	if err := m.check(); err != nil {
		return err
	}
	if err := fleet.CheckLabels(m.labels); err != nil {
		return usagef("--labels: %v", err)
	}
	if _, err := fleetclient.New(fleetclient.Options{URL: m.hub}); err != nil {
		return usagef("--hub: %v", err)
	}
	cfg, err := m.Config()
	if err != nil {
		return err
	}
	o, err := m.recall(ctx, cfg)
	if err != nil {
		return err
	}
	s, err := m.registration(ctx, cfg)
	if err != nil {
		return err
	}
	if len(m.labels) > 0 {
		s.Data[fleet.LabelsKey] = []byte(labels.FormatLabels(m.labels))
		maps.Copy(s.Labels, m.labels) // for selectors of ClusterInputProviders
		s.Labels[fleet.ClusterLabel] = m.name
	}
	s.Data[fleet.ReadsKey] = fmt.Appendf(nil, "%t", m.reads)
	if m.sso {
		s.Data[fleet.SSOKey] = []byte("true")
	}
	if m.export {
		return m.printRegistration(s)
	}
	if err := m.register(ctx, s, true); err != nil {
		return err
	}
	m.Done("the hub knows cluster '%s' by Secret '%s/%s'", m.name, s.Namespace, s.Name)
	return m.setReport(ctx, cfg, o, []string{"--report-to=" + m.hub, "--report-as=" + m.name})
}

func (m *membership) leave(ctx context.Context) error {
	if err := m.check(); err != nil {
		return err
	}
	cfg, err := m.Config()
	if err != nil {
		return err
	}
	o, err := m.recall(ctx, cfg)
	if err != nil {
		return err
	}
	if as := argOf(o.Args, "--report-as"); as != "" && as != m.name {
		return fmt.Errorf("this cluster reports as '%s', not as '%s': check --context and --name", as, m.name)
	}
	if err := m.setReport(ctx, cfg, o, nil); err != nil {
		return err
	}
	hub, err := m.hubClient()
	if err != nil {
		return err
	}
	found := &corev1.SecretList{}
	if err := hub.List(ctx, found, client.InNamespace(m.hubNamespace),
		client.MatchingLabels{fleet.ClusterLabel: m.name}); err != nil {
		return cluster.Explain("cannot read the Secrets of the hub", err)
	}
	for i := range found.Items {
		if err := client.IgnoreNotFound(hub.Delete(ctx, &found.Items[i])); err != nil {
			return cluster.Explain("cannot delete the Secret of the cluster", err)
		}
	}
	m.Done("the hub no longer knows cluster '%s'", m.name)
	return nil
}

func (m *membership) rotate(ctx context.Context) error {
	if err := m.check(); err != nil {
		return err
	}
	cfg, err := m.Config()
	if err != nil {
		return err
	}
	s, err := m.registration(ctx, cfg)
	if err != nil {
		return err
	}
	if m.subject == "" {
		delete(s.Data, fleet.SubjectKey) // it stays
	}
	if err := m.register(ctx, s, false); err != nil {
		return err
	}
	m.Done("the hub knows the current keys of cluster '%s'", m.name)
	return nil
}

// recall returns the options of the installation in the cluster.
func (m *membership) recall(ctx context.Context, cfg *rest.Config) (install.Options, error) {
	t, err := install.Connect(cfg, m.Timeout)
	if err != nil {
		return install.Options{}, err
	}
	defer t.Close()
	o, err := t.Recall(ctx, m.Namespace(), defaultTag())
	if err != nil && m.export {
		return o, nil // another tool installed it, and sets the flags
	}
	return o, err
}

// setReport sets the arguments of the report. Other arguments of the controllers stay.
func (m *membership) setReport(ctx context.Context, cfg *rest.Config, o install.Options, report []string) error {
	kept := slices.DeleteFunc(slices.Clone(o.Args), func(arg string) bool {
		return strings.HasPrefix(arg, "--report-to=") || strings.HasPrefix(arg, "--report-as=")
	})
	args := append(kept, report...)
	if slices.Equal(args, o.Args) {
		m.Step("the controllers have these settings already")
		return nil
	}
	if o.Args = args; len(args) == 0 {
		o.Args = []string{} // nil keeps those that the installation has
	}
	return install.Run(ctx, cfg, o, install.Request{Progress: m.UI, Timeout: m.Timeout, Wait: true,
		Changes: m.printChange})
}

// argOf returns the value of an argument; empty if it is not there.
func argOf(args []string, flag string) string {
	for _, arg := range args {
		if value, ok := strings.CutPrefix(arg, flag+"="); ok {
			return value
		}
	}
	return ""
}

// registration returns the Secret that registers the cluster, from what its API server says.
func (m *membership) registration(ctx context.Context, cfg *rest.Config) (*corev1.Secret, error) {
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	read := func(path string) ([]byte, error) {
		raw, err := clients.RESTClient().Get().AbsPath(path).DoRaw(ctx)
		if err != nil {
			return nil, cluster.Explain("cannot read "+path+" of the cluster, which needs ClusterRole "+
				"system:service-account-issuer-discovery", err)
		}
		return raw, nil
	}
	raw, err := read("/.well-known/openid-configuration")
	if err != nil {
		return nil, err
	}
	var issuer struct {
		Issuer string `json:"issuer"`
	}
	if err := json.Unmarshal(raw, &issuer); err != nil || issuer.Issuer == "" {
		return nil, errors.New("the API server does not say who issues its tokens: see --service-account-issuer of " +
			"kube-apiserver")
	}
	subject := m.subject
	if subject == "" {
		if subject, err = reporterOf(ctx, clients, m.Namespace()); err != nil {
			return nil, err
		}
	}
	s := &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{
		Name: m.name, Namespace: m.hubNamespace, Labels: map[string]string{fleet.ClusterLabel: m.name}},
		Data: map[string][]byte{fleet.IssuerKey: []byte(issuer.Issuer), fleet.SubjectKey: []byte(subject)}}
	if !m.fetchKeys {
		if s.Data[fleet.KeysKey], err = read("/openid/v1/jwks"); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// reporterOf returns the user that reports: the account of the first Deployment of ours that runs kustomize-controller.
func reporterOf(ctx context.Context, clients kubernetes.Interface, namespace string) (string, error) {
	all, err := clients.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", cluster.Explain("cannot read the Deployments of the controllers", err)
	}
	account := "sluice"
	for _, d := range all.Items {
		if d.Name == "sluice" || d.Name == "kustomize-controller" {
			account = cmp.Or(d.Spec.Template.Spec.ServiceAccountName, account)
		}
	}
	return "system:serviceaccount:" + namespace + ":" + account, nil
}

func (m *membership) hubClient() (client.Client, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = cmp.Or(m.hubKubeconfig, m.KubeconfigFile())
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: m.hubContext}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("cannot reach the hub's cluster: %w. Set --hub-context, and --hub-kubeconfig if it is "+
			"in another file", err)
	}
	return client.New(cfg, client.Options{Scheme: kubeclient.Scheme()})
}

// register writes the Secret of the cluster at the hub. Keys that are not ours, such as a kubeconfig, stay.
func (m *membership) register(ctx context.Context, s *corev1.Secret, isJoin bool) error {
	hub, err := m.hubClient()
	if err != nil {
		return err
	}
	live, err := m.registered(ctx, hub)
	switch {
	case apierrors.IsNotFound(err) && isJoin:
		err = hub.Create(ctx, s)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("the hub has no Secret '%s/%s': run sluice cluster join", s.Namespace, s.Name)
	case err == nil && live.Labels[fleet.ClusterLabel] != m.name && live.Labels[fleet.ClusterLabel] != "":
		return fmt.Errorf("Secret '%s/%s' registers cluster '%s': choose another --name", s.Namespace, s.Name,
			live.Labels[fleet.ClusterLabel])
	case err == nil:
		before := live.DeepCopy()
		if live.Labels == nil {
			live.Labels = map[string]string{}
		}
		m.setLabels(live, s, isJoin)
		for _, key := range m.ownedKeys(isJoin) {
			delete(live.Data, key)
		}
		if live.Data == nil {
			live.Data = map[string][]byte{}
		}
		maps.Copy(live.Data, s.Data)
		err = hub.Patch(ctx, live, client.MergeFrom(before))
		s.Name = live.Name
	}
	if err != nil {
		return cluster.Explain("cannot write the Secret of the cluster at the hub", err)
	}
	return nil
}

// registered returns the Secret that registers the cluster at the hub: the oldest with its label, as the hub takes it,
// or the one of its name.
func (m *membership) registered(ctx context.Context, hub client.Client) (*corev1.Secret, error) {
	found := &corev1.SecretList{}
	if err := hub.List(ctx, found, client.InNamespace(m.hubNamespace),
		client.MatchingLabels{fleet.ClusterLabel: m.name}); err != nil {
		return nil, err
	}
	if len(found.Items) > 0 {
		oldest := slices.MinFunc(found.Items, func(a, b corev1.Secret) int {
			return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
		})
		return &oldest, nil
	}
	named := &corev1.Secret{}
	return named, hub.Get(ctx, client.ObjectKey{Namespace: m.hubNamespace, Name: m.name}, named)
}

// setLabels sets the labels of the Secret. Those that were joined with before are replaced.
func (m *membership) setLabels(live, wanted *corev1.Secret, isJoin bool) {
	if former, err := labels.ConvertSelectorToLabelsMap(string(live.Data[fleet.LabelsKey])); err == nil && isJoin {
		for key, value := range former {
			if live.Labels[key] == value {
				delete(live.Labels, key)
			}
		}
	}
	maps.Copy(live.Labels, wanted.Labels)
}

// ownedKeys returns the keys of the Secret that the command sets or removes.
func (m *membership) ownedKeys(isJoin bool) []string {
	if isJoin {
		return []string{fleet.IssuerKey, fleet.SubjectKey, fleet.KeysKey, fleet.LabelsKey, fleet.ReadsKey,
			fleet.SSOKey}
	}
	return []string{fleet.IssuerKey, fleet.KeysKey}
}

// printRegistration prints the Secret, with the flags for the controllers in a comment.
func (m *membership) printRegistration(s *corev1.Secret) error {
	s.StringData = map[string]string{}
	for key, value := range s.Data {
		s.StringData[key] = string(value)
	}
	s.Data = nil
	fmt.Fprintf(m.Out, "# In the hub's cluster. The controllers of the cluster need the arguments\n# --report-to=%s "+
		"and --report-as=%s.\n", m.hub, m.name)
	return m.printDeclarations(s)
}
