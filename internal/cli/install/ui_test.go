package install

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestUIIsServedByOneDeployment(t *testing.T) {
	for name, split := range map[string]bool{"sluice": false, "kustomize-controller": true} {
		o := Default("v1")
		o.Split = split
		if got := manifests(t, o); got["Service/sluice-ui"] != nil || got["ClusterRole/sluice-ui"] != nil {
			t.Error("the UI is installed without --ui-url")
		}
		o.UI = UI{URL: "https://ui.example.com", Issuer: "https://login.example.com", ClientID: "sluice",
			ClientSecret: "login", UsernameClaim: "email", GroupsPrefix: "oidc:", NoTokenLogin: true}
		got := manifests(t, o)
		for key, u := range got {
			if !strings.HasPrefix(key, "Deployment/") {
				continue
			}
			args, text := argsOf(t, u), fmt.Sprint(u.Object)
			serves := slices.Contains(args, "--ui-external-url=https://ui.example.com") &&
				slices.Contains(args, "--ui-oidc-client-secret-file=/etc/sluice-ui/client-secret") &&
				slices.Contains(args, "--ui-oidc-username-claim=email") &&
				slices.Contains(args, "--ui-oidc-groups-prefix=oidc:") &&
				slices.Contains(args, "--ui-token-login=false") &&
				strings.Contains(text, "secretName:login") && strings.Contains(text, "containerPort:9095")
			if serves != (key == "Deployment/"+name) || !serves && strings.Contains(text, "--ui-") {
				t.Errorf("%s, split %v: the arguments are %q", key, split, args)
			}
		}
		selected, _, _ := unstructured.NestedString(got["Service/sluice-ui"].Object, "spec", "selector", appLabel)
		subjects, _, _ := unstructured.NestedSlice(got["ClusterRoleBinding/sluice-ui"].Object, "subjects")
		if selected != name || len(subjects) != 1 || subjects[0].(map[string]any)["name"] != name ||
			got["NetworkPolicy/sluice-ui"] == nil {
			t.Errorf("split %v: the Service selects '%s', the subjects are %v", split, selected, subjects)
		}
	}
	for flag, ui := range map[string]UI{"--ui-url": {Issuer: "https://a"},
		"--ui-url: \"http://a\" must start with https://":  {URL: "http://a"},
		"--mcp-url: \"http://a\" must start with https://": {URL: "https://a", MCPURL: "http://a"},
		"--ui-oidc-client-secret":                          {URL: "https://a", ClientSecret: "a b"},
		"--ui-oidc-client-id":                              {URL: "https://a", Issuer: "https://a"},
		"--ui-oidc-issuer":                                 {URL: "https://a", Issuer: "http://a", ClientID: "c"},
		"--ui-oidc-client-secret needs":                    {URL: "https://a", ClientSecret: "a"},
		"--ui-oidc-username-claim needs --ui-oidc-issuer":  {URL: "https://a", UsernameClaim: "email"},
		"--ui-oidc-groups-prefix needs --ui-oidc-issuer":   {URL: "https://a", GroupsPrefix: "oidc:"},
		"--ui-token-login=false needs":                     {URL: "https://a", NoTokenLogin: true},
		"must not start with 'system:'": {URL: "https://a", Issuer: "https://b", ClientID: "c",
			UsernamePrefix: "system:"}} {
		o := Default("v1")
		o.UI = ui
		if _, err := Manifests(o); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%+v: got %v", ui, err)
		}
	}
}
