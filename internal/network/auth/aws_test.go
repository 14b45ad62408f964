package auth

import (
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	appRole = "arn:aws:iam::123456789012:role/app: AccessDenied: Not authorized to perform " +
		"sts:AssumeRoleWithWebIdentity. Check the annotations of service account 'team/app', and the trust " +
		"between the cloud and the cluster"
	otherRole = "arn:aws:iam::123456789012:role/other"
)

// fakeSTS answers AssumeRoleWithWebIdentity as AWS documents it.
func fakeSTS(t *testing.T, clock interface{ Now() time.Time }) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v := form(t, r)
		expect(t, "Action", v("Action"), "AssumeRoleWithWebIdentity")
		expect(t, "Version", v("Version"), "2011-06-15")
		expect(t, "Authorization", r.Header.Get("Authorization"), "")
		account, role := app, appRole
		if v("RoleArn") == otherRole {
			account, role = other, otherRole
		}
		expect(t, "RoleArn", v("RoleArn"), role)
		expect(t, "RoleSessionName", v("RoleSessionName"), account.Name+"."+account.Namespace+".sluice")
		if v("WebIdentityToken") != tokenOf(account, "sts.amazonaws.com") {
			w.WriteHeader(http.StatusBadRequest)
			answer(w, `<ErrorResponse><Error><Code>InvalidIdentityToken</Code><Message>s3cret token</Message>`+
				`</Error><RequestId>1</RequestId></ErrorResponse>`)
			return
		}
		answer(w, `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
			<AssumeRoleWithWebIdentityResult><Credentials>
			<AccessKeyId>ASIA-%s</AccessKeyId><SecretAccessKey>s3cret</SecretAccessKey>
			<SessionToken>session-%s</SessionToken><Expiration>%s</Expiration>
			</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`,
			account.Namespace, account.Namespace, clock.Now().Add(time.Hour).Format(time.RFC3339))
	}
}

func fakeECR(t *testing.T, target, scope string, expires time.Time, public bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		expect(t, "X-Amz-Target", r.Header.Get("X-Amz-Target"), target)
		expect(t, "the body", body(t, r), "{}")
		namespace := strings.TrimPrefix(r.Header.Get("X-Amz-Security-Token"), "session-")
		if signed := r.Header.Get("Authorization"); !strings.HasPrefix(signed, "AWS4-HMAC-SHA256 Credential=ASIA-"+
			namespace+"/") || !strings.Contains(signed, scope) {
			t.Errorf("the request is signed as %q", signed)
		}
		data := `{"authorizationToken":"` + base64.StdEncoding.EncodeToString([]byte("AWS:password-"+namespace)) +
			`","expiresAt":` + strconv.FormatInt(expires.Unix(), 10) + `}`
		if !public {
			data = "[" + data + "]"
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		answer(w, `{"authorizationData":%s}`, data)
	}
}

func TestECRWithRoleOfServiceAccount(t *testing.T) {
	t.Parallel()
	clock := at(time.Now())
	c := newClouds(t, map[string]http.HandlerFunc{
		"sts.us-west-2.amazonaws.com": fakeSTS(t, clock),
		"sts.us-east-1.amazonaws.com": fakeSTS(t, clock),
		"api.ecr.us-west-2.amazonaws.com": fakeECR(t,
			"AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken", "/us-west-2/ecr/aws4_request", clock.Now().
				Add(12*time.Hour), false),
		"api.ecr-public.us-east-1.amazonaws.com": fakeECR(t, "SpencerFrontendService.GetAuthorizationToken",
			"/us-east-1/ecr-public/aws4_request", clock.Now().Add(12*time.Hour), true),
	})
	i := &Identities{Accounts: accounts{app: {roleAnnotation: appRole}, other: {roleAnnotation: otherRole}},
		Transport: c, Clock: clock}
	checkLogin := func(url string, account types.NamespacedName) {
		t.Helper()
		a, err := i.Registry(within(t), AWS, url, &account)
		got := login(t, a, err)
		expect(t, "the login", got.Username+":"+got.Password, "AWS:password-"+account.Namespace)
	}
	private := "oci://123456789012.dkr.ecr.us-west-2.amazonaws.com/charts"
	c.roundTrips("the first login", 2, func() { checkLogin(private, app) })
	c.roundTrips("the same again", 0, func() {
		checkLogin(private, app)
		checkLogin("123456789012.dkr.ecr.us-west-2.amazonaws.com/charts/b", app)
	})
	c.roundTrips("another account", 2, func() { checkLogin(private, other) })
	c.roundTrips("the public registry", 2, func() { checkLogin("oci://public.ecr.aws/team/app", app) })
	clock.SetTime(clock.Now().Add(maxTTL))
	c.roundTrips("an hour later", 2, func() { checkLogin(private, app) })
}

func TestECRFailures(t *testing.T) {
	t.Parallel()
	clock := at(time.Now())
	c := newClouds(t, map[string]http.HandlerFunc{
		"sts.us-west-2.amazonaws.com": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			answer(w, `<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code>`+
				`<Message>Not authorized to perform sts:AssumeRoleWithWebIdentity</Message></Error>`+
				`<RequestId>4711</RequestId></ErrorResponse>`)
		},
	})
	i := &Identities{Accounts: accounts{app: {roleAnnotation: appRole}, other: {}}, Transport: c, Clock: clock}
	url := "oci://123456789012.dkr.ecr.us-west-2.amazonaws.com/charts"
	_, err := i.Registry(within(t), AWS, url, &app)
	mustFail(t, err, appRole, "AccessDenied: Not authorized to perform sts:AssumeRoleWithWebIdentity. Check the "+
		"annotations of service account 'team/app', and the trust between the cloud and the "+
		"cluster", "service account 'team/app'")
	if strings.Contains(err.Error(), "4711") {
		t.Errorf("the fault contains an identifier of the request: %v", err)
	}
	_, err = i.Registry(within(t), AWS, url, &other)
	mustFail(t, err, roleAnnotation, "'other/app' has no role ARN in its annotation eks.amazonaws.com/role-arn. "+
		"Use the form arn:aws:iam::ACCOUNT:role/NAME")
	_, err = i.Registry(within(t), AWS, url, &types.NamespacedName{Namespace: "team", Name: "gone"})
	mustFail(t, err, "cannot read service account 'team/gone'")
	_, err = (&Identities{}).Registry(within(t), AWS, url, &app)
	mustFail(t, err, "cannot be used here. Remove spec.serviceAccountName, or allow the controller to create "+
		"tokens of service accounts")
	for _, host := range []string{"ghcr.io", "evil.com/123456789012.dkr.ecr.us-west-2.amazonaws.com",
		"123456789012.dkr.ecr.us-west-2.amazonaws.com.evil.com",
		"123456789012.dkr.ecr.evil.com#.us-west-2.amazonaws.com"} {
		_, err = i.Registry(within(t), AWS, "oci://"+host+"/x", &app)
		mustFail(t, err, "no token is sent to it")
	}
}

func TestAWSCredentialsAreRenewed(t *testing.T) {
	t.Parallel()
	clock := at(time.Now())
	c := newClouds(t, map[string]http.HandlerFunc{"sts.eu-central-1.amazonaws.com": fakeSTS(t, clock)})
	i := &Identities{Accounts: accounts{app: {roleAnnotation: appRole}}, Transport: c, Clock: clock}
	provider, err := i.AWS(within(t), "eu-central-1", &app)
	if err != nil {
		t.Fatal(err)
	}
	// they are valid for an hour, and renewed five minutes before
	for n, passed := range []time.Duration{0, 54 * time.Minute, 2 * time.Minute} {
		clock.SetTime(clock.Now().Add(passed))
		got, err := provider.Retrieve(within(t))
		if err != nil {
			t.Fatal(err)
		}
		expect(t, "the key", got.AccessKeyID+" "+got.SecretAccessKey+" "+got.SessionToken,
			"ASIA-team s3cret session-team")
		if want := 1 + n/2; c.total() != want {
			t.Errorf("step %d: STS got %d requests, want %d", n, c.total(), want)
		}
	}
}

func TestCodeCommit(t *testing.T) {
	t.Parallel()
	clock := at(time.Now())
	c := newClouds(t, map[string]http.HandlerFunc{"sts.us-east-1.amazonaws.com": fakeSTS(t, clock)})
	i := &Identities{Accounts: accounts{app: {roleAnnotation: appRole}}, Transport: c, Clock: clock}
	got, err := i.Git(within(t), AWS, "https://git-codecommit.us-east-1.amazonaws.com/v1/repos/app", &app)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "the user", got.Username, "ASIA-team%session-team")
	expect(t, "the time of the signature", strings.SplitAfter(got.Password, "Z")[0], clock.Now().UTC().
		Format("20060102T150405Z"))
	for _, url := range []string{"https://github.com/v1/repos/app",
		"https://git-codecommit.us-east-1.amazonaws.com.evil.com/v1/repos/app"} {
		_, err = i.Git(within(t), AWS, url, &app)
		mustFail(t, err, "no token is sent to it")
	}
	_, err = i.Git(within(t), AWS, "http://git-codecommit.us-east-1.amazonaws.com/v1/repos/app", &app)
	mustFail(t, err, "https URL. Use an https:// URL in spec.url, or another spec.provider")
}

func TestAWSCredentialsOfProcess(t *testing.T) {
	for name, v := range map[string]string{"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "s3cret",
		"AWS_SESSION_TOKEN": "session-process",
		"AWS_CONFIG_FILE":   "/nowhere", "AWS_SHARED_CREDENTIALS_FILE": "/nowhere",
		"AWS_EC2_METADATA_DISABLED": "true"} {
		t.Setenv(name, v)
	}
	provider, err := (&Identities{}).AWS(within(t), "eu-central-1", nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := provider.Retrieve(within(t))
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "the key", got.AccessKeyID, "AKIA")
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	_, err = (&Identities{}).AWS(within(t), "eu-central-1", nil)
	mustFail(t, err, "the controller has no AWS credentials")
}

// The expected signature was computed by another program, from the documentation of AWS.
func TestCodeCommitSignature(t *testing.T) {
	got := signCodeCommit("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "us-east-1",
		"git-codecommit.us-east-1.amazonaws.com", "/v1/repos/MyDemoRepo", noon)
	expect(t, "the signature", got, "20261121T120000Zade5605570f36b1edd3e68d88d349f435577fb3d868ef6a2d22e910bdd2d1888")
}
