package main

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-gitops/sluice/internal/cli/install"
	"github.com/sluice-gitops/sluice/internal/process/options"
)

// Values that stand for those of a release, and that nothing else contains.
const (
	anyNamespace = "sluice-release-namespace"
	anyDomain    = "sluice-cluster-domain"
	anySecret    = "sluice-ui-client-secret"
	anyReview    = "sluice-review-files"
	anyHubSecret = "sluice-hub-certificate"

	anyBackendSecret = "sluice-storage-backend"
)

// backendCondition is true in releases with a storage backend.
const backendCondition = ".Values.storageBackend.endpoint"

// Conditions that are true in releases with a hub, and with one that has a certificate.
const (
	hubCondition    = ".Values.hub.url"
	hubTLSCondition = ".Values.hub.tlsSecret"
)

// clientSecretCondition is true in releases whose login provider has given them a secret.
const clientSecretCondition = ".Values.ui.oidc.clientSecret"

// autoscalerCondition is true in releases with an autoscaler. Its value needs those of autoShards and storageBackend.
const autoscalerCondition = ".Values.maxReplicas"

// variant is an installation without one thing.
type variant struct {
	condition string // of the template that is true in releases with that thing
	objects   map[string]*unstructured.Unstructured
}

// source has everything that a release can contain, and finds out what each part depends on.
type source struct {
	complete []*unstructured.Unstructured
	variants []variant
}

// complete returns the options of a release that contains everything.
func complete() install.Options {
	o := install.Default("")
	o.Namespace, o.ClusterDomain, o.Profile = anyNamespace, anyDomain, install.ProfileMultiTenant
	o.UI = install.UI{URL: "https://sluice.example.com", Issuer: "https://login.example.com", ClientID: "sluice",
		ClientSecret: anySecret, ReviewSecret: anyReview, MCPURL: "https://mcp.example.com"}
	o.Hub = install.Hub{URL: "https://hub.example.com", TLSSecret: anyHubSecret}
	o.AutoShards, o.MaxReplicas = true, 10
	o.Backend = install.Backend{Endpoint: "https://s3.example.com", Bucket: "sluice", Secret: anyBackendSecret}
	return o
}

func newSource() (*source, error) {
	s := &source{}
	var err error
	if s.complete, err = install.Manifests(complete()); err != nil {
		return nil, err
	}
	without := map[string]func(*install.Options){
		".Values.networkPolicy": func(o *install.Options) { o.NetworkPolicy = false },
		".Values.ui.url": func(o *install.Options) {
			o.UI.URL, o.UI.MCPURL, o.UI.ReviewSecret = "", "", "" // a hub has the logins
		},
		clientSecretCondition:     func(o *install.Options) { o.UI.ClientSecret = "" },
		".Values.ui.mcpURL":       func(o *install.Options) { o.UI.MCPURL = "" },
		hubCondition:              func(o *install.Options) { o.Hub = install.Hub{} },
		hubTLSCondition:           func(o *install.Options) { o.Hub.TLSSecret = "" },
		".Values.ui.reviewSecret": func(o *install.Options) { o.UI.ReviewSecret = "" },
		autoscalerCondition:       func(o *install.Options) { o.MaxReplicas = 0 },
		backendCondition: func(o *install.Options) {
			o.Backend, o.AutoShards, o.MaxReplicas = install.Backend{}, false, 0
		},
		".Values.storageBackend.secret": func(o *install.Options) { o.Backend.Secret = "" },
	}
	tenants := fmt.Sprintf("eq .Values.profile %q", install.ProfileMultiTenant)
	without[tenants] = func(o *install.Options) { o.Profile = "" }
	for _, c := range options.AllControllers {
		without[fmt.Sprintf(`has %q (include "sluice.components" . | fromJsonArray)`, c)] = func(o *install.Options) {
			o.Components = slices.DeleteFunc(slices.Clone(o.Components), func(one string) bool { return one == c })
		}
	}
	for condition, change := range without {
		o := complete()
		change(&o)
		objects, err := install.Manifests(o)
		if err != nil {
			return nil, err
		}
		v := variant{condition: condition, objects: map[string]*unstructured.Unstructured{}}
		for _, u := range objects {
			v.objects[key(u)] = u
		}
		s.variants = append(s.variants, v)
	}
	slices.SortFunc(s.variants, func(a, b variant) int { return strings.Compare(a.condition, b.condition) })
	return s, nil
}

func key(u *unstructured.Unstructured) string { return u.GetKind() + "/" + u.GetName() }

// condition returns what must be true for the object to exist, or for the part of it that present looks for: all
// variants without it. It is empty if all variants have it.
func (s *source) condition(u *unstructured.Unstructured, present func(*unstructured.Unstructured) bool) string {
	var conditions []string
	for _, v := range s.variants {
		other := v.objects[key(u)]
		if present == nil && other == nil || present != nil && other != nil && !present(other) {
			conditions = append(conditions, v.condition)
		}
	}
	if len(conditions) < 2 {
		return strings.Join(conditions, "")
	}
	return "and (" + strings.Join(conditions, ") (") + ")"
}

// when returns a template of text that is left out if the condition is false.
func when(condition, text, indent string) string {
	if condition == "" || text == "" {
		return text
	}
	return indent + "{{- if " + condition + " }}\n" + text + indent + "{{- end }}\n"
}
