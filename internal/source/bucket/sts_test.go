package bucket

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/testenv/s3server"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// tokenService implements the documented API of a Security Token Service for one action. It returns the keys of the S3
// server if the parameters are as wanted.
func tokenService(t *testing.T, action string, want map[string]string) (url string, asked *atomic.Int32) {
	t.Helper()
	asked = &atomic.Int32{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if err := r.ParseForm(); err != nil || r.Method != http.MethodPost || r.Form.Get("Action") != action ||
			r.Form.Get("Version") != "2011-06-15" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		for key, value := range want {
			if r.Form.Get(key) != value {
				w.WriteHeader(http.StatusForbidden)
				fmt.Fprint(w, `<ErrorResponse><Error><Code>AccessDenied</Code><Message>no access</Message></Error>`+
					`</ErrorResponse>`)
				return
			}
		}
		type credentials struct {
			AccessKeyID     string `xml:"AccessKeyId"`
			SecretAccessKey string
			Expiration      time.Time
		}
		var answer struct {
			XMLName xml.Name
			Keys    credentials `xml:"Result>Credentials"`
		}
		answer.XMLName = xml.Name{Space: "https://sts.amazonaws.com/doc/2011-06-15/", Local: action + "Response"}
		answer.Keys = credentials{AccessKeyID: s3server.AccessKey, SecretAccessKey: s3server.SecretKey,
			Expiration: time.Now().Add(time.Hour)}
		text, err := xml.Marshal(answer)
		if err != nil {
			t.Error(err)
		}
		fmt.Fprint(w, strings.NewReplacer("<Result>", "<"+action+"Result>", "</Result>", "</"+action+"Result>").
			Replace(string(text)))
	}))
	t.Cleanup(server.Close)
	return server.URL, asked
}

func TestTemporaryKeys(t *testing.T) {
	s := s3server.New(t)
	s.Put("apps", map[string]string{"a.yaml": "a"})
	ldap, ldapAsked := tokenService(t, "AssumeRoleWithLDAPIdentity",
		map[string]string{"LDAPUsername": "jane", "LDAPPassword": "pa55"})
	web, webAsked := tokenService(t, "AssumeRoleWithWebIdentity",
		map[string]string{"RoleArn": "arn:aws:iam::1:role/x", "WebIdentityToken": "t0ken"})
	token := func(text string) func(context.Context) (string, error) {
		return func(context.Context) (string, error) { return text, nil }
	}
	for name, c := range map[string]struct {
		keys    *credentials.Credentials
		asked   *atomic.Int32
		message string // of the failure
	}{
		"LDAP": {keys: LDAPKeys(ldap, auth.Basic{Username: "jane", Password: "pa55"}, http.DefaultTransport),
			asked: ldapAsked},
		"web identity": {keys: WebIdentityKeys(web, "arn:aws:iam::1:role/x", token("t0ken"), http.DefaultTransport),
			asked: webAsked},
		"wrong LDAP password": {
			keys:    LDAPKeys(ldap, auth.Basic{Username: "jane", Password: "wr0ng"}, http.DefaultTransport),
			message: "Security Token Service at '" + ldap + "' returned no credentials"},
		"stopped service": {
			keys: LDAPKeys("http://127.0.0.1:1", auth.Basic{Username: "jane", Password: "wr0ng"},
				http.DefaultTransport), message: "connection refused"},
		"wrong web identity token": {
			keys:    WebIdentityKeys(web, "arn:aws:iam::1:role/x", token("wr0ng"), http.DefaultTransport),
			message: "Security Token Service"},
	} {
		t.Run(name, func(t *testing.T) {
			cache := open(t, t.TempDir())
			remote := newS3(t, S3{Endpoint: s.Endpoint, Insecure: true, Bucket: "apps", Region: "us-east-1",
				Keys: c.keys})
			var before int32
			if c.asked != nil {
				before = c.asked.Load()
			}
			for range 2 {
				l, err := cache.List(t.Context(), remote, "", nil)
				if c.message != "" {
					if fault.Reason(err, "") != "AuthenticationFailed" ||
						!strings.Contains(fmt.Sprint(err), c.message) ||
						strings.Contains(fmt.Sprint(err), "wr0ng") {
						t.Errorf("got %v, want %q", err, c.message)
					}
					return
				}
				if err != nil || len(l.Objects) != 1 {
					t.Fatalf("%+v, %v", l, err)
				}
			}
			if n := c.asked.Load() - before; n != 1 {
				t.Errorf("the service received %d requests while the keys were valid", n)
			}
		})
	}
}

func TestKeysAreRenewedBeforeTheyExpire(t *testing.T) {
	s := s3server.New(t)
	s.Put("apps", map[string]string{"a.yaml": "a"})
	asked := 0
	r := newS3(t, S3{Endpoint: s.Endpoint, Insecure: true, Bucket: "apps", Region: "us-east-1",
		Keys: KeysOf(func(context.Context) (Key, error) {
			if asked++; asked > 2 {
				return Key{}, fault.New("AuthenticationFailed", "the identity has expired")
			}
			return Key{Access: s3server.AccessKey, Secret: s3server.SecretKey, Expires: time.Now()}, nil
		})})
	var last error
	for range 3 {
		_, last = open(t, t.TempDir()).List(t.Context(), r, "", nil)
	}
	if asked < 3 || fault.Reason(last, "") != "AuthenticationFailed" ||
		!strings.Contains(last.Error(), "the identity has expired") {
		t.Errorf("%d requests, error %v", asked, last)
	}
}

func TestKeysFromRequiresBothKeys(t *testing.T) {
	for _, data := range []map[string][]byte{{}, {"accesskey": []byte("x")}, {"secretkey": []byte("x")}} {
		if _, err := KeysFrom(data); fault.Reason(err, "") != "AuthenticationFailed" ||
			fault.As(err).Hint != "Set both keys, or correct spec.secretRef" {
			t.Errorf("%v: %v", data, err)
		}
	}
	var none *fault.Fault
	if _, err := KeysFrom(accountKeys); errors.As(err, &none) {
		t.Error(err)
	}
}
