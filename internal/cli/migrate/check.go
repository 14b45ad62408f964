package migrate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// OurDeployment is the name of the Deployment of Sluice.
const OurDeployment = "sluice"

// check adds what keeps the migration from starting, and what is worth knowing.
func (e *Engine) check(ctx context.Context, p *Plan) error {
	p.Blockers = append(p.Blockers, e.checkScope(p.Controllers)...)
	e.checkControllers(p)
	for _, d := range p.definitions {
		if blocker := e.checkDefinition(d); blocker != "" {
			p.block("%s", blocker)
		}
	}
	if len(p.definitions) == 0 {
		p.block("the cluster has no CustomResourceDefinitions of Flux, although its controllers are "+
			"installed. Install "+
			"Flux completely, or delete its Deployments in namespace '%s' and run sluice install", e.Namespace)
	}
	e.checkObjects(p)
	p.Blockers = append(p.Blockers, e.checkShards(p.Controllers, p.Objects)...)
	for _, check := range []func(context.Context, *Plan) error{e.checkSyncs, e.checkReleases, e.checkOurs,
		e.checkRights} {
		if err := check(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) checkControllers(p *Plan) {
	for _, name := range required {
		if !slices.ContainsFunc(p.Controllers, func(c Controller) bool { return c.Name == name }) {
			p.Missing = append(p.Missing, name)
		}
	}
	if len(p.Missing) > 0 {
		p.warn("Flux does not run %s in namespace '%s'. Sluice runs only the controllers that Flux runs",
			strings.Join(p.Missing, ", "), e.Namespace)
	}
	for _, c := range p.Controllers {
		if text, _ := c.flag(selectorFlag); c.Moves && text != "" && !e.isSharded() {
			p.warn("Deployment '%s' selects objects with --%s=%s. Sluice reconciles the objects of all shards",
				c.Deployment, selectorFlag, text)
		}
		if text, _ := c.flag("watch-all-namespaces"); c.Moves && text == "false" {
			p.warn("Deployment '%s' watches only its own namespace, and so will Sluice", c.Deployment)
		}
	}
}

// checkObjects adds the fields that would be lost or that Sluice refuses, and objects that are not Ready.
func (e *Engine) checkObjects(p *Plan) {
	byKind := map[string]*definition{}
	for _, d := range p.definitions {
		byKind[d.group+"/"+d.kind] = d
	}
	for _, o := range p.Objects {
		if d := byKind[o.Group+"/"+o.Kind]; d != nil {
			if lost := e.lostFields(d, o); len(lost) > 0 {
				p.block("%s sets fields that Sluice does not have: %s. Remove them first", o.Ref,
					strings.Join(lost, ", "))
			}
		}
		if !o.Moves {
			continue
		}
		if isKeyless(o.live) {
			p.block("%s verifies keyless signatures without matchOIDCIdentity, so that a signature of anyone is "+
				"accepted, which Sluice refuses. Set the issuer and the subject of the signer first", o.Ref)
		}
		_, restricted, _ := unstructured.NestedMap(o.live.Object, "spec", "accessFrom")
		switch {
		case restricted && o.Group == "source.toolkit.fluxcd.io":
			p.block("%s sets spec.accessFrom, which Flux ignores and Sluice refuses. Remove the field first", o.Ref)
		case o.live.GetDeletionTimestamp() != nil:
			p.block("%s is being deleted. Wait until it is gone", o.Ref)
		case !o.Suspended && o.Ready == "False":
			p.warn("%s is not Ready before the migration, so it is not waited for: %s", o.Ref, o.Message)
		case !o.Suspended && o.Ready == "Unknown":
			p.warn("%s is progressing; the migration does not wait for it: %s", o.Ref, o.Message)
		}
	}
}

// isKeyless reports whether a source, or the chart of a HelmRelease, accepts keyless signatures of any identity.
func isKeyless(u *unstructured.Unstructured) bool {
	path := []string{"spec", "verify"}
	if u.GetKind() == "HelmRelease" {
		path = []string{"spec", "chart", "spec", "verify"}
	}
	verify, found, _ := unstructured.NestedMap(u.Object, path...)
	provider, _ := verify["provider"].(string)
	identities, _ := verify["matchOIDCIdentity"].([]any)
	return found && provider == "cosign" && verify["secretRef"] == nil && len(identities) == 0
}

// checkReleases looks for Helm actions that have not ended.
func (e *Engine) checkReleases(ctx context.Context, p *Plan) error {
	if !e.moves(helmController) {
		return nil
	}
	secrets := &corev1.SecretList{}
	selector := client.HasLabels{"name", "version"}
	pending := map[string]bool{}
	for _, status := range []string{"pending-install", "pending-upgrade", "pending-rollback", "uninstalling"} {
		if err := e.Client.List(ctx, secrets, selector,
			client.MatchingLabels{"owner": "helm", "status": status}); err != nil {
			return fmt.Errorf("cannot list the Secrets of Helm releases: %w", err)
		}
		for _, s := range secrets.Items {
			pending[s.Namespace+"/"+s.Labels["name"]] = true
		}
	}
	for _, o := range p.Objects {
		if o.Kind != "HelmRelease" || !o.Moves || o.Suspended {
			continue
		}
		if namespace, name := releaseOf(o.live); pending[namespace+"/"+name] {
			p.block("%s: an action of Helm release '%s/%s' has not ended. Wait until it ends. If no "+
				"process works on it, "+
				"suspend the HelmRelease and run helm rollback", o.Ref, namespace, name)
		}
	}
	return nil
}

// releaseOf returns the namespace and the name of the Helm release of a HelmRelease.
func releaseOf(u *unstructured.Unstructured) (namespace, name string) {
	text := func(field string) string {
		s, _, _ := unstructured.NestedString(u.Object, "spec", field)
		return s
	}
	namespace, name = u.GetNamespace(), u.GetName()
	target := text("targetNamespace")
	if target != "" {
		name = target + "-" + name
	}
	if s := text("releaseName"); s != "" {
		name = s
	}
	if s := text("storageNamespace"); s != "" {
		namespace = s
	}
	return namespace, name
}

// checkOurs looks for a Sluice that runs already, and which no migration started.
func (e *Engine) checkOurs(ctx context.Context, p *Plan) error {
	live, err := e.getIfExists(ctx, e.ourDeployment())
	if err != nil || live == nil || p.Resumes != nil {
		return err
	}
	if n, found, _ := unstructured.NestedInt64(live.Object, "spec", "replicas"); !found || n > 0 {
		p.block("Sluice runs already in namespace '%s', next to Flux. Stop one of them, for example: "+
			"kubectl -n %s scale "+
			"deployment/%s --replicas=0", e.Namespace, e.Namespace, OurDeployment)
	}
	return nil
}

func (e *Engine) ourDeployment() Ref {
	return Ref{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: e.Namespace, Name: OurDeployment}
}

// checkRights asks the API server for the permissions that the steps need.
func (e *Engine) checkRights(ctx context.Context, p *Plan) error {
	for _, a := range []authorizationv1.ResourceAttributes{
		{Verb: "patch", Group: "apps", Resource: "deployments", Namespace: e.Namespace},
		{Verb: "create", Resource: "configmaps", Namespace: e.Namespace},
		{Verb: "list", Resource: "pods", Namespace: e.Namespace},
		{Verb: "list", Group: "coordination.k8s.io", Resource: "leases", Namespace: e.Namespace},
		{Verb: "update", Group: definitionGVK.Group, Resource: "customresourcedefinitions"},
		{Verb: "create", Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"},
		{Verb: "create", Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies"},
		{Verb: "patch", Group: "kustomize.toolkit.fluxcd.io", Resource: "kustomizations"},
	} {
		review := &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &a}}
		if err := e.Client.Create(ctx, review); err != nil {
			return fmt.Errorf("cannot check permissions: %w", err)
		}
		if !review.Status.Allowed {
			p.block("you may not %s %s. Use an account of a cluster administrator", a.Verb,
				strings.Trim(a.Resource+"."+a.Group, "."))
		}
	}
	return nil
}
