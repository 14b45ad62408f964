package auth

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const appProvider = "projects/123/locations/global/workloadIdentityPools/pool/providers/cluster"

// fakeGoogleSTS answers the exchange of tokens as Google documents it (RFC 8693).
func fakeGoogleSTS(t *testing.T, audience, tokenAudience string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v := form(t, r)
		expect(t, "the path", r.URL.Path, "/v1/token")
		expect(t, "grant_type", v("grant_type"), "urn:ietf:params:oauth:grant-type:token-exchange")
		expect(t, "subject_token_type", v("subject_token_type"), "urn:ietf:params:oauth:token-type:jwt")
		expect(t, "requested_token_type", v("requested_token_type"), "urn:ietf:params:oauth:token-type:access_token")
		expect(t, "audience", v("audience"), audience)
		w.Header().Set("Content-Type", "application/json")
		if v("subject_token") != tokenOf(app, tokenAudience) {
			w.WriteHeader(http.StatusBadRequest)
			answer(w, `{"error":"invalid_grant","error_description":"The audience in ID Token does not match."}`)
			return
		}
		answer(w, `{"access_token":"federated","issued_token_type":"urn:ietf:params:oauth:token-type:access_token",`+
			`"token_type":"Bearer","expires_in":3600}`)
	}
}

func TestGCPWithFederation(t *testing.T) {
	t.Parallel()
	c := newClouds(t, map[string]http.HandlerFunc{
		"sts.googleapis.com": fakeGoogleSTS(t, "//iam.googleapis.com/"+appProvider, "https://iam.googleapis.com/"+
			appProvider),
	})
	i := &Identities{Accounts: accounts{app: {gcpProviderAnnotation: appProvider},
		other: {gcpProviderAnnotation: appProvider}}, Transport: c}
	for n := range 2 {
		c.roundTrips("a login", 1-n, func() {
			a, err := i.Registry(within(t), GCP, "oci://europe-west1-docker.pkg.dev/project/charts", &app)
			got := login(t, a, err)
			expect(t, "the login", got.Username+":"+got.Password, "oauth2accesstoken:federated")
		})
	}
	_, err := i.Registry(within(t), GCP, "gcr.io/project/app", &other)
	mustFail(t, err, "Google Cloud issued no token", "service account 'other/app'")
	for _, host := range []string{"ghcr.io", "gcr.io.evil.com", "evil.com/gcr.io", "docker.pkg.dev.evil.com"} {
		_, err = i.Registry(within(t), GCP, "oci://"+host+"/x", &app)
		mustFail(t, err, "no token is sent to it. Use REGION-docker.pkg.dev in spec.url, or another spec.provider")
	}
}

func TestGCPOnGKEWithImpersonation(t *testing.T) {
	t.Parallel()
	const email = "charts@project.iam.gserviceaccount.com"
	c := newClouds(t, map[string]http.HandlerFunc{
		"sts.googleapis.com": fakeGoogleSTS(t, "identitynamespace:my-project.svc.id.goog:"+
			"https://container.googleapis.com/v1/projects/my-project/locations/europe-west1/clusters/prod",
			"my-project.svc.id.goog"),
		"iamcredentials.googleapis.com": func(w http.ResponseWriter, r *http.Request) {
			expect(t, "the request", r.Method+" "+r.URL.Path, "POST /v1/projects/-/serviceAccounts/"+email+
				":generateAccessToken")
			expect(t, "Authorization", r.Header.Get("Authorization"), "Bearer federated")
			var request struct{ Scope []string }
			if err := json.Unmarshal([]byte(body(t, r)), &request); err != nil ||
				strings.Join(request.Scope, " ") != "https://www.googleapis.com/auth/devstorage.read_only" {
				t.Errorf("the scopes are %v, %v", request.Scope, err)
			}
			answer(w, `{"accessToken":"impersonated","expireTime":"%s"}`, time.Now().Add(time.Hour).
				Format(time.RFC3339))
		},
	})
	metadata := newClouds(t, map[string]http.HandlerFunc{"169.254.169.254": func(w http.ResponseWriter,
		r *http.Request) {
		expect(t, "Metadata-Flavor", r.Header.Get("Metadata-Flavor"), "Google")
		values := map[string]string{"project/project-id": "my-project",
			"instance/attributes/cluster-location": "europe-west1", "instance/attributes/cluster-name": "prod"}
		answer(w, "%s\n", values[strings.TrimPrefix(r.URL.Path, "/computeMetadata/v1/")])
	}})
	i := &Identities{Accounts: accounts{app: {gcpAccountAnnotation: email}}, Transport: c, Metadata: metadata}
	source, err := i.GCP(within(t), &app, "https://www.googleapis.com/auth/devstorage.read_only")
	if err != nil {
		t.Fatal(err)
	}
	token, err := source.Token()
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "the token", token.AccessToken, "impersonated")
}

func TestInvalidAnnotations(t *testing.T) {
	t.Parallel()
	nowhere := newClouds(t, nil)
	const accountHint = "Use the form NAME@PROJECT.iam.gserviceaccount.com"
	for _, c := range []struct {
		annotations map[string]string
		hint        string
	}{
		{annotations: map[string]string{gcpProviderAnnotation: "projects/x"}, hint: "Use the form " +
			"projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER"},
		{annotations: map[string]string{gcpProviderAnnotation: appProvider, gcpAccountAnnotation: "me@evil.com"},
			hint: accountHint},
		{annotations: map[string]string{gcpProviderAnnotation: appProvider,
			gcpAccountAnnotation: "x/../y@project.iam.gserviceaccount.com"}, hint: accountHint},
		{annotations: map[string]string{}, // the cluster is not on GKE
			hint: "Set the annotation to the workload identity provider that trusts the cluster"},
	} {
		i := &Identities{Accounts: accounts{app: c.annotations}, Transport: nowhere, Metadata: nowhere}
		_, err := i.GCP(within(t), &app)
		mustFail(t, err, "service account 'team/app'", c.hint)
	}
	if nowhere.total() != 0 {
		t.Errorf("%d requests were made", nowhere.total())
	}
	i := &Identities{Accounts: accounts{app: {}}, Transport: nowhere}
	if _, err := i.Registry(within(t), "dockerhub", "docker.io/x", &app); err == nil {
		t.Error("an unknown provider is accepted")
	}
	if _, err := i.Registry(within(t), GCP, "gcr.io/x", &types.NamespacedName{Namespace: "a", Name: "b"}); err == nil {
		t.Error("an account that does not exist is accepted")
	}
}

func TestGCPTokensOfProcess(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := form(t, r)
		expect(t, "subject_token", v("subject_token"), "token of the pod")
		w.Header().Set("Content-Type", "application/json")
		answer(w, `{"access_token":"ambient","issued_token_type":"urn:ietf:params:oauth:token-type:access_token",`+
			`"token_type":"Bearer","expires_in":3600}`)
	}))
	t.Cleanup(s.Close)
	dir := t.TempDir()
	token, config := filepath.Join(dir, "token"), filepath.Join(dir, "config.json")
	for file, content := range map[string]string{token: "token of the pod",
		config: `{"type":"external_account","audience":"//iam.googleapis.com/` + appProvider +
			`","subject_token_type":"urn:ietf:params:oauth:token-type:jwt","token_url":"` + s.URL +
			`","credential_source":{"file":"` + token + `"}}`} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", config)
	a, err := (&Identities{}).Registry(within(t), GCP, "gcr.io/project/app", nil)
	expect(t, "the password", login(t, a, err).Password, "ambient")
	s.Close()
	_, err = (&Identities{}).Registry(within(t), GCP, "gcr.io/project/app", nil)
	mustFail(t, err, "Check that the ServiceAccount of the controller has an identity of the cloud with the required "+
		"permissions")
}
