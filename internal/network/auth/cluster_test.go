package auth

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	eksARN = "arn:aws:eks:us-west-2:123456789012:cluster/prod"
	aksID  = "/subscriptions/33333333-3333-3333-3333-333333333333/resourceGroups/apps" +
		"/providers/Microsoft.ContainerService/managedClusters/prod"
	gkeID = "projects/project/locations/europe-west1/clusters/prod"
	pemCA = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
)

// access returns the access to a cluster, and a token with its expiry.
func access(t *testing.T, i *Identities, r ClusterRequest) (*ClusterAccess, string, time.Time) {
	t.Helper()
	a, err := i.Cluster(within(t), r)
	if err != nil {
		t.Fatal(err)
	}
	token, expires, err := a.Token(within(t))
	if err != nil {
		t.Fatal(err)
	}
	return a, token, expires
}

// fakeEKS answers DescribeCluster as AWS documents it.
func fakeEKS(t *testing.T) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		expect(t, "the request", r.Method+" "+r.URL.String(), "GET /clusters/prod")
		signed := r.Header.Get("Authorization")
		if !strings.HasPrefix(signed, "AWS4-HMAC-SHA256 Credential=ASIA-team/") ||
			!strings.Contains(signed, "/us-west-2/eks/aws4_request") {
			w.WriteHeader(http.StatusForbidden)
			answer(w, `{"message":"User is not authorized to perform: eks:DescribeCluster"}`)
			return
		}
		answer(w, `{"cluster":{"name":"prod","endpoint":"https://ABC.gr7.us-west-2.eks.amazonaws.com",`+
			`"certificateAuthority":{"data":"%s"}}}`,
			base64.StdEncoding.EncodeToString([]byte(pemCA)))
	}
}

// checkEKSToken checks a token of EKS as EKS and AWS do: it is a URL of GetCallerIdentity with a version 4 signature.
func checkEKSToken(t *testing.T, token string, at time.Time) {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(token, "k8s-aws-v1."))
	if err != nil || !strings.HasPrefix(token, "k8s-aws-v1.") {
		t.Fatalf("the token is %q: %v", token, err)
	}
	u, err := url.Parse(string(raw))
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "the URL", u.Scheme+"://"+u.Host+u.Path, "https://sts.us-west-2.amazonaws.com/")
	q := u.Query()
	day, timestamp := at.UTC().Format("20060102"), at.UTC().Format("20060102T150405Z")
	scope := day + "/us-west-2/sts/aws4_request"
	for name, want := range map[string]string{
		"Action": "GetCallerIdentity", "Version": "2011-06-15", "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
		"X-Amz-Expires": "60", "X-Amz-Date": timestamp,
		"X-Amz-Credential": "ASIA-team/" + scope, "X-Amz-Security-Token": "session-team",
		"X-Amz-SignedHeaders": "host;x-k8s-aws-id",
	} {
		expect(t, name, q.Get(name), want)
	}
	signature := q.Get("X-Amz-Signature")
	q.Del("X-Amz-Signature")
	empty := sha256.Sum256(nil)
	request := sha256.Sum256([]byte(strings.Join([]string{"GET", "/", strings.ReplaceAll(q.Encode(), "+", "%20"),
		"host:" + u.Host, "x-k8s-aws-id:prod", "", "host;x-k8s-aws-id", hex.EncodeToString(empty[:])}, "\n")))
	key := []byte("AWS4" + "s3cret")
	for _, part := range []string{day, "us-west-2", "sts", "aws4_request"} {
		key = mac(key, part)
	}
	expect(t, "the signature", signature, hex.EncodeToString(mac(key, "AWS4-HMAC-SHA256\n"+timestamp+"\n"+scope+"\n"+
		hex.EncodeToString(request[:]))))
}

func TestEKSWithRoleOfServiceAccount(t *testing.T) {
	t.Parallel()
	clock := at(time.Now())
	c := newClouds(t, map[string]http.HandlerFunc{"sts.us-west-2.amazonaws.com": fakeSTS(t, clock),
		"eks.us-west-2.amazonaws.com": fakeEKS(t)})
	i := &Identities{Accounts: accounts{app: {roleAnnotation: appRole}, other: {roleAnnotation: otherRole}},
		Transport: c, Clock: clock}
	r := ClusterRequest{Provider: AWS, Cluster: eksARN, Account: &app}
	c.roundTrips("the first access", 2, func() {
		a, token, expires := access(t, i, r)
		expect(t, "the address", a.Address, "https://abc.gr7.us-west-2.eks.amazonaws.com")
		expect(t, "the authority", string(a.CA), pemCA)
		expect(t, "the validity of the token", expires.Sub(clock.Now()).String(), "14m0s")
		checkEKSToken(t, token, clock.Now())
	})
	c.roundTrips("the same again", 0, func() { access(t, i, r) })
	c.roundTrips("with address and authority", 0, func() {
		r := r
		r.Address, r.CA = "https://elsewhere:6443", []byte("own")
		a, token, _ := access(t, i, r)
		expect(t, "the address", a.Address+" "+string(a.CA), "https://elsewhere:6443 own")
		checkEKSToken(t, token, clock.Now())
	})
	clock.SetTime(clock.Now().Add(52 * time.Minute))
	if _, _, expires := access(t, i, r); !expires.After(clock.Now()) {
		t.Errorf("the token expired at %s", expires)
	}
	clock.SetTime(clock.Now().Add(time.Hour))
	c.roundTrips("an hour later", 2, func() { access(t, i, r) })

	r.Account = &other
	_, err := i.Cluster(within(t), r)
	mustFail(t, err, "cannot read cluster '"+eksARN+"'", "not authorized to perform: eks:DescribeCluster. Check "+
		"the name, and that the identity has the permission eks:DescribeCluster",
		"permission eks:DescribeCluster")
	r.Account, r.Address = &app, "https://evil.example.com"
	_, err = i.Cluster(within(t), r)
	mustFail(t, err, "'https://evil.example.com' is not an address of cluster",
		"Remove the key 'address', or set it to one of: https://abc.gr7.us-west-2.eks.amazonaws.com")
	for _, name := range []string{"", "prod", "arn:aws:eks:us-west-2:123456789012:cluster/a/b",
		"arn:aws:eks:evil.com/x-1:123456789012:cluster/a", "arn:aws:iam::123456789012:role/a",
		"arn:evil:eks:us-west-2:123456789012:cluster/a", "arn:aws:eks:us-west-2:1:cluster/a"} {
		_, err = i.Cluster(within(t), ClusterRequest{Provider: AWS, Cluster: name, Address: "https://x",
			CA: []byte("x"), Account: &app})
		mustFail(t, err, "is not the ARN of a cluster. Use the form arn:aws:eks:REGION:ACCOUNT:cluster/NAME")
	}
}

// fakeARM answers listClusterUserCredential as Azure documents it.
func fakeARM(t *testing.T) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		expect(t, "the request", r.Method+" "+r.URL.String(), "POST "+aksID+
			"/listClusterUserCredential?api-version=2025-10-01&format=exec")
		if r.Header.Get("Authorization") != "Bearer entra-team" {
			w.WriteHeader(http.StatusForbidden)
			answer(w, `{"error":{"code":"AuthorizationFailed","message":"The client does not have authorization"}}`)
			return
		}
		config := `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"prod","cluster":{` +
			`"server":"https://prod-1.hcp.westeurope.azmk8s.io:443","certificate-authority-data":"` +
			base64.StdEncoding.EncodeToString([]byte(pemCA)) +
			`"}}],"users":[{"name":"u",` +
			`"user":{"exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"kubelogin"}}}]}`
		response, err := json.Marshal(map[string]any{
			"kubeconfigs": []map[string]any{{"name": "clusterUser", "value": []byte(config)}}})
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(response)
	}
}

func TestAKSWithIdentityOfServiceAccount(t *testing.T) {
	t.Parallel()
	clock := at(time.Now())
	entra := fakeEntra(t, ".default", app)
	var scopes []string
	c := newClouds(t, map[string]http.HandlerFunc{
		"management.azure.com": fakeARM(t),
		"login.microsoftonline.com": func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/token") {
				scopes = append(scopes, form(t, r)("scope"))
			}
			entra(w, r)
		},
	})
	i := &Identities{Accounts: accounts{app: {clientAnnotation: appClient, tenantAnnotation: appTenant}}, Transport: c,
		Clock: clock}
	r := ClusterRequest{Provider: Azure, Cluster: aksID, Account: &app}
	a, token, expires := access(t, i, r)
	expect(t, "the address", a.Address, "https://prod-1.hcp.westeurope.azmk8s.io")
	expect(t, "the authority", string(a.CA), pemCA)
	expect(t, "the token", token, "entra-team")
	if left := expires.Sub(clock.Now()); left < 50*time.Minute {
		t.Errorf("the token is valid for %s", left)
	}
	if got := strings.Join(scopes, " "); !strings.Contains(got, "https://management.core.windows.net//.default") &&
		!strings.Contains(got, "https://management.azure.com//.default") ||
		!strings.Contains(got, "6dae42f8-4368-4678-94ff-3960e28e3630/.default") {
		t.Errorf("the scopes of the tokens are %s", got)
	}
	c.roundTrips("the same again", 0, func() { access(t, i, r) })
	c.roundTrips("with address and authority", 0, func() {
		a, token, _ := access(t, i, ClusterRequest{Provider: Azure, Address: "https://own", CA: []byte("own"),
			Account: &app})
		expect(t, "the access", a.Address+" "+string(a.CA)+" "+token, "https://own own entra-team")
	})
	r.Address = "https://evil.example.com"
	_, err := i.Cluster(within(t), r)
	mustFail(t, err, "is not an address of cluster")
	for _, name := range []string{"prod", aksID + "/../x",
		strings.Replace(aksID, "33333333-3333-3333-3333-333333333333", "x", 1), aksID + "?x"} {
		_, err = i.Cluster(within(t), ClusterRequest{Provider: Azure, Cluster: name, Account: &app})
		mustFail(t, err, "is not the resource ID of a cluster. Use the form "+
			"/subscriptions/ID/resourceGroups/GROUP/providers/Microsoft.ContainerService/managedClusters/NAME")
	}
}

// fakeGKE answers projects.locations.clusters.get as Google documents it.
func fakeGKE(t *testing.T) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		expect(t, "the request", r.Method+" "+r.URL.String(), "GET /v1/"+gkeID)
		expect(t, "Authorization", r.Header.Get("Authorization"), "Bearer federated")
		answer(w, `{"endpoint":"192.0.2.1","masterAuth":{"clusterCaCertificate":"%s"},"controlPlaneEndpointsConfig":{
			"dnsEndpointConfig":{"endpoint":"gke-abc.europe-west1.gke.goog"},
			"ipEndpointsConfig":{"enabled":true,"publicEndpoint":"192.0.2.1","privateEndpoint":"10.0.0.2"}}}`,
			base64.StdEncoding.EncodeToString([]byte(pemCA)))
	}
}

func TestGKEWithFederation(t *testing.T) {
	t.Parallel()
	c := newClouds(t, map[string]http.HandlerFunc{
		"sts.googleapis.com":       fakeGoogleSTS(t, "//iam.googleapis.com/"+appProvider, "https://own-audience"),
		"container.googleapis.com": fakeGKE(t),
	})
	i := &Identities{Accounts: accounts{app: {gcpProviderAnnotation: appProvider}}, Transport: c}
	for address, want := range map[string]string{
		"": "https://192.0.2.1 " + pemCA, "https://10.0.0.2": "https://10.0.0.2 " + pemCA,
		"https://gke-abc.europe-west1.gke.goog": "https://gke-abc.europe-west1.gke.goog ",
	} {
		a, token, _ := access(t, i, ClusterRequest{Provider: GCP, Cluster: gkeID, Address: address, Account: &app,
			Audience: "https://own-audience"})
		expect(t, "the access", a.Address+" "+string(a.CA), want)
		expect(t, "the token", token, "federated")
	}
	expect(t, "the requests", time.Duration(c.total()).String(), "2ns")
	_, err := i.Cluster(within(t), ClusterRequest{Provider: GCP, Cluster: gkeID, Account: &app})
	mustFail(t, err, "Google Cloud issued no token") // the audience is part of the cache key
	_, err = i.Cluster(within(t), ClusterRequest{Provider: GCP, Cluster: "projects/a/locations/b/clusters/../../x",
		Account: &app})
	mustFail(t, err, "is not the name of a cluster. Use the form projects/PROJECT/locations/LOCATION/clusters/NAME")
	c.servers["container.googleapis.com"] = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		answer(w, "{}")
	}))
	t.Cleanup(c.servers["container.googleapis.com"].Close)
	_, err = i.Cluster(within(t), ClusterRequest{Provider: GCP, Cluster: gkeID + "2", Account: &app,
		Audience: "https://own-audience"})
	mustFail(t, err, "has no address yet. Wait until it is created, or enable one of its endpoints")
	_, err = i.Cluster(within(t), ClusterRequest{Provider: "other", Cluster: gkeID})
	mustFail(t, err, "provider 'other' does not support workload identity")
}

// A token of the process has more permissions than the author of the request. It must be sent only to addresses that
// the cloud reports.
func TestTokensOfProcessAreSentToReportedAddressesOnly(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "ASIA-team")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
	t.Setenv("AWS_SESSION_TOKEN", "session-team")
	clock := at(time.Now())
	c := newClouds(t, map[string]http.HandlerFunc{"eks.us-west-2.amazonaws.com": fakeEKS(t)})
	i := &Identities{Transport: c, Clock: clock}
	_, token, _ := access(t, i, ClusterRequest{Provider: AWS, Cluster: eksARN})
	checkEKSToken(t, token, clock.Now())
	_, err := i.Cluster(within(t), ClusterRequest{Provider: AWS, Cluster: eksARN, Address: "https://evil.example.com",
		CA: []byte("evil")})
	mustFail(t, err, "is not an address of cluster")
	for _, provider := range []string{Azure, GCP} {
		_, err = i.Cluster(within(t), ClusterRequest{Provider: provider, Address: "https://evil.example.com",
			CA: []byte("evil")})
		mustFail(t, err, "the name of the cluster is not set. Set 'cluster' to its full name; it is optional "+
			"only if address, ca.crt and serviceAccountName are set")
	}
	_, err = i.Cluster(within(t), ClusterRequest{Provider: AWS, Cluster: eksARN,
		Account: &types.NamespacedName{Namespace: "team", Name: "app"}})
	mustFail(t, err, "cannot be used here. Remove spec.serviceAccountName, or allow the controller to create "+
		"tokens of service accounts")
}

func FuzzClusterNames(f *testing.F) {
	f.Add(eksARN)
	f.Add(aksID)
	f.Add(gkeID)
	f.Fuzz(func(t *testing.T, name string) {
		i := &Identities{}
		for provider, parse := range map[string]func(string) (managed, error){AWS: i.eks, Azure: i.aks, GCP: i.gke} {
			if _, err := parse(name); err == nil &&
				(strings.ContainsAny(name, "?#%\\ \n") || strings.Contains(name, "/../")) {
				t.Errorf("%q is accepted as a cluster of %s", name, provider)
			}
		}
	})
}
