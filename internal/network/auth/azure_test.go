package auth

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"k8s.io/apimachinery/pkg/types"
)

const (
	appTenant = "11111111-1111-1111-1111-111111111111"
	appClient = "22222222-2222-2222-2222-222222222222"
)

// fakeEntra implements the Microsoft identity platform: discovery, metadata, and the exchange of a federated token.
func fakeEntra(t *testing.T, scope string, account types.NamespacedName) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		base := "https://" + r.Host + "/" + appTenant
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/discovery/instance"):
			answer(w, `{"tenant_discovery_endpoint":"%s/v2.0/.well-known/openid-configuration",`+
				`"metadata":[{"preferred_network":"%s","preferred_cache":"%s","aliases":["%s"]}]}`,
				base, r.Host, r.Host, r.Host)
		case strings.HasSuffix(r.URL.Path, "/openid-configuration"):
			answer(w, `{"token_endpoint":"%s/oauth2/v2.0/token","authorization_endpoint":"%s/oauth2/v2.0/authorize",`+
				`"issuer":"%s/v2.0"}`, base, base, base)
		case r.URL.Path == "/"+appTenant+"/oauth2/v2.0/token":
			v := form(t, r)
			expect(t, "grant_type", v("grant_type"), "client_credentials")
			expect(t, "client_assertion_type", v("client_assertion_type"),
				"urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
			expect(t, "client_id", v("client_id"), appClient)
			if !strings.Contains(v("scope"), scope) {
				t.Errorf("the scope is %q, want %q", v("scope"), scope)
			}
			if v("client_assertion") != tokenOf(account, "api://AzureADTokenExchange") {
				w.WriteHeader(http.StatusUnauthorized)
				answer(w, `{"error":"invalid_client",`+
					`"error_description":"AADSTS70021: No matching federated identity record found. Trace ID: 4711 `+
					`Correlation ID: 4712 Timestamp: 2026-11-21 12:00:00Z","error_codes":[70021]}`)
				return
			}
			answer(w, `{"token_type":"Bearer","expires_in":3600,"access_token":"entra-%s"}`, account.Namespace)
		default:
			t.Errorf("unexpected request to Entra: %s", r.URL.Path)
		}
	}
}

func TestACRWithIdentityOfServiceAccount(t *testing.T) {
	t.Parallel()
	clock := at(time.Now())
	c := newClouds(t, map[string]http.HandlerFunc{
		"login.microsoftonline.com": fakeEntra(t, acrScope, app),
		"team.azurecr.io": func(w http.ResponseWriter, r *http.Request) {
			v := form(t, r)
			expect(t, "the request", r.Method+" "+r.URL.Path, "POST /oauth2/exchange")
			expect(t, "grant_type", v("grant_type"), "access_token")
			expect(t, "service", v("service"), "team.azurecr.io")
			if v("access_token") != "entra-team" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			answer(w, `{"refresh_token":"refresh"}`)
		},
		"denied.azurecr.io": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			answer(w, `{"errors":[{"message":"s3cret entra-team"}]}`)
		},
	})
	annotations := map[string]string{clientAnnotation: appClient, tenantAnnotation: appTenant}
	i := &Identities{Accounts: accounts{app: annotations, other: annotations, {Namespace: "team", Name: "bare"}: {}},
		Transport: c, Clock: clock}
	a, err := i.Registry(within(t), Azure, "oci://team.azurecr.io/charts/app", &app)
	got := login(t, a, err)
	expect(t, "the login", got.Username+":"+got.Password, acrUser+":refresh")
	c.roundTrips("the same again", 0, func() {
		if _, err := i.Registry(within(t), Azure, "oci://team.azurecr.io/other", &app); err != nil {
			t.Error(err)
		}
	})
	c.roundTrips("another registry", 1, func() {
		_, err := i.Registry(within(t), Azure, "oci://denied.azurecr.io/charts", &app)
		mustFail(t, err, "host 'denied.azurecr.io' refused the login (HTTP 403). Check that the identity has the "+
			"role AcrPull on the registry",
			"Check that the identity has the role AcrPull on the registry")
	})
	// the other account has the same annotations, but does not share credentials with the first one
	_, err = i.Registry(within(t), Azure, "oci://team.azurecr.io/charts/app", &other)
	mustFail(t, err, "invalid_client: AADSTS70021: No matching federated identity record found.",
		"service account 'other/app'")
	if strings.Contains(err.Error(), "4711") {
		t.Errorf("the fault contains an identifier of the request: %v", err)
	}
	_, err = i.Registry(within(t), Azure, "oci://team.azurecr.io/charts/app",
		&types.NamespacedName{Namespace: "team", Name: "bare"})
	mustFail(t, err, clientAnnotation, tenantAnnotation, "Set them to the client ID and the tenant ID of the managed "+
		"identity")
	for _, host := range []string{"azurecr.io", "evil.com", "team.azurecr.io.evil.com", "team.azurecr.io@evil.com",
		"evil.com?team.azurecr.io"} {
		_, err = i.Registry(within(t), Azure, "oci://"+host+"/x", &app)
		mustFail(t, err, "no token is sent to it")
	}
}

func TestAzureDevOpsAndBlobs(t *testing.T) {
	t.Parallel()
	i := &Identities{Accounts: accounts{app: {clientAnnotation: appClient, tenantAnnotation: appTenant}}}
	i.Transport = newClouds(t, map[string]http.HandlerFunc{"login.microsoftonline.com": fakeEntra(t, devOpsScope, app)})
	for _, url := range []string{"https://dev.azure.com/org/project/_git/repo",
		"https://org@dev.azure.com/org/project/_git/repo", "https://org.visualstudio.com/project/_git/repo"} {
		got, err := i.Git(within(t), Azure, url, &app)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, "the token", got.BearerToken+got.Username+got.Password, "entra-team")
	}
	_, err := i.Git(within(t), Azure, "https://github.com/org/repo", &app)
	mustFail(t, err, "no token is sent to it")
	_, err = i.Git(within(t), "gcp", "https://github.com/org/repo", &app)
	mustFail(t, err, "provider 'gcp' does not support workload identity here")

	const scope = "https://storage.azure.com/.default"
	i.Transport = newClouds(t, map[string]http.HandlerFunc{"login.microsoftonline.com": fakeEntra(t, scope, app)})
	credential, err := i.Azure(within(t), &app)
	if err != nil {
		t.Fatal(err)
	}
	token, err := credential.GetToken(within(t), policy.TokenRequestOptions{Scopes: []string{scope}})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "the token", token.Token, "entra-team")
}

func TestAzureTokensOfProcess(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		expect(t, "X-IDENTITY-HEADER", r.Header.Get("X-IDENTITY-HEADER"), "header")
		expect(t, "resource", r.URL.Query().Get("resource"), strings.TrimSuffix(devOpsScope, "/.default"))
		answer(w, `{"access_token":"managed","expires_on":"%d","resource":"x","token_type":"Bearer"}`, time.Now().
			Add(time.Hour).Unix())
	}))
	t.Cleanup(s.Close)
	t.Setenv("IDENTITY_ENDPOINT", s.URL) // as in Azure App Service
	t.Setenv("IDENTITY_HEADER", "header")
	got, err := (&Identities{}).Git(within(t), Azure, "https://dev.azure.com/org/project/_git/repo", nil)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "the token", got.BearerToken, "managed")
}

func TestCheckEndpointAcceptsHostsOfCloudOnly(t *testing.T) {
	t.Parallel()
	for endpoint, provider := range map[string]string{
		"https://team.blob.core.windows.net": Azure, "https://Team.blob.core.windows.net/": Azure,
		"https://team.z01.blob.storage.azure.net": Azure,
		"storage.googleapis.com":                  GCP, "https://storage.googleapis.com": GCP,
		"storage-x.p.googleapis.com":          GCP,
		"https://sts.eu-west-1.amazonaws.com": AWS, "https://vpce-1.sts.eu-west-1.vpce.amazonaws.com": AWS,
		"https://sts.amazonaws.com": AWS,
	} {
		if err := CheckEndpoint(provider, endpoint, false); err != nil {
			t.Errorf("%s of %s: %v", endpoint, provider, err)
		}
	}
	for endpoint, provider := range map[string]string{
		"https://evil.com": Azure, "https://team.blob.core.windows.net.evil.com": Azure,
		"http://team.blob.core.windows.net":           Azure,
		"https://team.blob.core.windows.net@evil.com": Azure, "https://evil.com/team.blob.core.windows.net": Azure,
		"":         Azure,
		"evil.com": GCP, "storage.googleapis.com.evil.com": GCP, "storage.googleapis.com@evil.com": GCP,
		"evilgoogleapis.com": GCP, "http://storage.googleapis.com": GCP,
		"https://evil.execute-api.us-east-1.amazonaws.com": AWS, "https://sts.s3.amazonaws.com": AWS,
		"https://evil.org": AWS,
	} {
		mustFail(t, CheckEndpoint(provider, endpoint, false), "must not receive a token", "spec.secretRef")
	}
	mustFail(t, CheckEndpoint(GCP, "storage.googleapis.com", true), "Use an endpoint such as "+
		"storage.googleapis.com with TLS, or set spec.secretRef to a Secret with credentials")
	mustFail(t, CheckEndpoint("generic", "https://storage.googleapis.com", false),
		"does not support workload identity here. Set spec.provider to generic, and spec.secretRef to a Secret "+
			"with a login")
}
