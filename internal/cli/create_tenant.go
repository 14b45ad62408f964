package cli

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/cli/install"
)

// tenantLabel marks the namespaces and accounts of a tenant.
const tenantLabel = "toolkit.fluxcd.io/tenant"

// tenantQuota bounds what one namespace of a tenant may hold, so that no tenant slows down the others.
var tenantQuota = map[corev1.ResourceName]string{
	"count/kustomizations.kustomize.toolkit.fluxcd.io":     "100",
	"count/helmreleases.helm.toolkit.fluxcd.io":            "100",
	"count/gitrepositories.source.toolkit.fluxcd.io":       "50",
	"count/ocirepositories.source.toolkit.fluxcd.io":       "100",
	"count/helmrepositories.source.toolkit.fluxcd.io":      "50",
	"count/helmcharts.source.toolkit.fluxcd.io":            "100",
	"count/buckets.source.toolkit.fluxcd.io":               "50",
	"count/artifactgenerators.source.extensions.fluxcd.io": "50",
	"count/imagerepositories.image.toolkit.fluxcd.io":      "100",
	"count/receivers.notification.toolkit.fluxcd.io":       "50",
	"count/alerts.notification.toolkit.fluxcd.io":          "50",
	"count/gates.gating.toolkit.fluxcd.io":                 "100",
	"count/imageupdateautomations.image.toolkit.fluxcd.io": "50",
	"count/providers.notification.toolkit.fluxcd.io":       "50",
	"count/imagepolicies.image.toolkit.fluxcd.io":          "200",
	"count/externalartifacts.source.toolkit.fluxcd.io":     "200",
	"count/gateapprovals.gating.toolkit.fluxcd.io":         "1000",
	"count/imageupdatejobs.image.toolkit.fluxcd.io":        "200",
}

// tenantCommand is `sluice create tenant`.
type tenantCommand struct {
	*env
	*createOptions
	namespaces           []string
	clusterRole, account string
	profile              string
	skipNamespace        bool
}

func newCreateTenantCommand(e *env, o *createOptions) *cobra.Command {
	t := &tenantCommand{env: e, createOptions: o}
	c := &cobra.Command{
		Use:   "tenant NAME",
		Short: "Create or update the namespaces and the account of a tenant",
		Long: `Create or update the namespaces of a tenant, with an account that may change
everything in them and nothing elsewhere. Kustomizations and HelmReleases of the
tenant are applied with that account if they name it in serviceAccountName.`,
		Example: `  sluice create tenant team-a --with-namespace frontend --with-namespace backend
  sluice create tenant team-a --with-namespace frontend --profile multi-tenant \
    --with-service-account default --export > team-a.yaml`,
		Args: oneNewName,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := t.validate(args[0]); err != nil {
				return err
			}
			return t.run(cmd.Context(), args[0])
		},
	}
	f := c.Flags()
	f.StringSliceVar(&t.namespaces, "with-namespace", nil, "namespace of the tenant; may be repeated")
	f.StringVar(&t.clusterRole, "cluster-role", "cluster-admin",
		"ClusterRole of the tenant's account, which it has in its namespaces only")
	f.StringVar(&t.account, "with-service-account", "", "name of the account (default: the name of the tenant)")
	f.BoolVar(&t.skipNamespace, "skip-namespace", false, "do not create the namespaces: they exist")
	f.StringVar(&t.profile, "profile", "", "multi-tenant: bound the number of the tenant's objects by a ResourceQuota")
	return c
}

func (t *tenantCommand) validate(name string) error {
	if len(t.namespaces) == 0 {
		return usagef("--with-namespace is missing: name at least one namespace of the tenant")
	}
	for _, namespace := range append([]string{name}, t.namespaces...) {
		if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
			return usagef("invalid name %q of a tenant or namespace: %s", namespace, problems[0])
		}
	}
	if t.account != "" && len(validation.IsDNS1123Subdomain(t.account)) > 0 {
		return usagef("invalid name %q for --with-service-account", t.account)
	}
	return optionalOneOf("profile", t.profile, install.ProfileMultiTenant)
}

func (t *tenantCommand) run(ctx context.Context, name string) error {
	var objects []client.Object
	for _, namespace := range t.namespaces {
		objects = append(objects, t.objects(name, namespace)...)
	}
	if t.export {
		return t.printDeclarations(objects...)
	}
	ctx, cancel := t.WithTimeout(ctx)
	defer cancel()
	cl, err := t.Client()
	if err != nil {
		return err
	}
	c := &creation{env: t.env, createOptions: *t.createOptions}
	for _, o := range objects {
		if _, err := c.put(ctx, cl, o); err != nil {
			return err
		}
	}
	return nil
}

// objects returns what a tenant needs in a namespace.
func (t *tenantCommand) objects(name, namespace string) []client.Object {
	account := cmp.Or(t.account, name)
	meta := func(object string) metav1.ObjectMeta {
		labels := map[string]string{tenantLabel: name}
		for key, value := range t.labels {
			labels[key] = value
		}
		return metav1.ObjectMeta{Namespace: namespace, Name: object, Labels: labels}
	}
	var objects []client.Object
	if !t.skipNamespace {
		ns := &corev1.Namespace{ObjectMeta: meta(namespace)}
		ns.Namespace = ""
		objects = append(objects, ns)
	}
	objects = append(objects,
		&corev1.ServiceAccount{ObjectMeta: meta(account)},
		&rbacv1.RoleBinding{ObjectMeta: meta(name + "-reconciler"),
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: t.clusterRole},
			Subjects: []rbacv1.Subject{
				{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "gotk:" + namespace + ":reconciler"},
				{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: namespace},
			}})
	if t.profile == install.ProfileMultiTenant {
		quota := &corev1.ResourceQuota{ObjectMeta: meta(name)}
		quota.Spec.Hard = corev1.ResourceList{}
		for counted, most := range tenantQuota {
			quota.Spec.Hard[counted] = resource.MustParse(most)
		}
		objects = append(objects, quota)
	}
	return objects
}
