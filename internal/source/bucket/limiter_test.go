package bucket

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// longServer answers each request with a text, followed by copies of another one. Its clients count what they read.
type longServer struct {
	*httptest.Server
	next http.RoundTripper
	read atomic.Int64 // bytes of all bodies, after decompression
}

func newLong(t *testing.T, c longCase) *longServer {
	t.Helper()
	s := &longServer{}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		out := io.Writer(w)
		w.Header().Set("Content-Type", "application/xml")
		w.Header().Set("Last-Modified", "Wed, 25 Nov 2026 00:00:00 GMT")
		if c.isCompressed {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			defer z.Close() // the client may have disconnected
			out = z
		}
		_, err := io.WriteString(out, c.start)
		for range c.copies {
			if err == nil { // the client has not disconnected
				_, err = io.WriteString(out, c.repeated)
			}
		}
		_, _ = io.WriteString(out, c.end)
	}))
	t.Cleanup(s.Close)
	s.next = s.Client().Transport
	return s
}

// RoundTrip implements [http.RoundTripper].
func (s *longServer) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := s.next.RoundTrip(req)
	if err == nil {
		resp.Body = &countedBody{resp.Body, s}
	}
	return resp, err
}

func (s *longServer) host() string { return strings.TrimPrefix(s.URL, "https://") }

func (s *longServer) s3(region string) (Remote, error) {
	keys := NoKeys()
	if region == "" { // the location is requested with keys only
		var err error
		if keys, err = KeysFrom(accountKeys); err != nil {
			return nil, err
		}
	}
	return NewS3(S3{Endpoint: s.host(), Bucket: "apps", Region: region, Keys: keys, Transport: s})
}

func (s *longServer) gcs() (Remote, error) {
	return NewGCS(GCS{Endpoint: s.host(), Bucket: "apps", Transport: s})
}

func (s *longServer) azure(login AzureLogin) (Remote, error) {
	return NewAzure(Azure{Endpoint: s.URL, Container: "apps", Login: login, Transport: s})
}

// countedBody counts the bytes that a client reads.
type countedBody struct {
	io.ReadCloser
	of *longServer
}

// Read implements [io.Reader].
func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.of.read.Add(int64(n))
	return n, err
}

// longCase is a response of a hostile server.
type longCase struct {
	remote          func(*longServer) (Remote, error)
	start, repeated string
	copies          int
	end             string
	isCompressed    bool
	message         string
}

var (
	tooLong = "the response exceeds 4194304 bytes"
	tooMany = "the response exceeds 64000 XML elements"
	long    = strings.Repeat("x", 10<<10)
	spaces  = strings.Repeat(" ", 10<<10)
)

var longCases = map[string]longCase{
	"long names of S3": {remote: func(s *longServer) (Remote, error) { return s.s3("us-east-1") },
		start: "<ListBucketResult>", repeated: "<Contents><Key>" + long + "</Key></Contents>", copies: 1200,
		message: tooLong + ". Check the endpoint: a page of a listing has at most 1000 objects, and other " +
			"responses are short"},
	"long names of S3, compressed": {remote: func(s *longServer) (Remote, error) { return s.s3("us-east-1") },
		start: "<ListBucketResult>", repeated: "<Contents><Key>" + long + "</Key></Contents>", copies: 1200,
		isCompressed: true, message: tooLong},
	"small elements of S3": {remote: func(s *longServer) (Remote, error) { return s.s3("us-east-1") },
		start: "<ListBucketResult>", repeated: "<Contents/>", copies: 70_000, end: "</ListBucketResult>",
		message: tooMany},
	"location of S3": {remote: func(s *longServer) (Remote, error) { return s.s3("") },
		start: "<LocationConstraint>", repeated: long, copies: 1200, message: tooLong},
	"text after a listing of S3": {remote: func(s *longServer) (Remote, error) { return s.s3("us-east-1") },
		start: "<ListBucketResult></ListBucketResult>", repeated: spaces, copies: 1200},
	"spaces of GCS": {remote: (*longServer).gcs, start: "{", repeated: spaces, copies: 1200, message: tooLong},
	"small objects of GCS": {remote: (*longServer).gcs, start: `{"items":[{"size":"1"}`, repeated: `,{"size":"1"}`,
		copies: 1000, end: "]}", message: "the response exceeds 1000 objects"},
	"spaces of Azure": {remote: func(s *longServer) (Remote, error) { return s.azure(AzureLogin{}) },
		start: "<EnumerationResults>", repeated: spaces, copies: 1200, message: tooLong},
	"small elements of Azure": {remote: func(s *longServer) (Remote, error) { return s.azure(AzureLogin{}) },
		start: "<EnumerationResults><Blobs>", repeated: "<Blob/>", copies: 70_000,
		end: "</Blobs></EnumerationResults>", message: tooMany},
	"Security Token Service": {remote: func(s *longServer) (Remote, error) {
		return NewS3(S3{Endpoint: s.host(), Bucket: "apps", Region: "us-east-1", Transport: s,
			Keys: LDAPKeys(s.URL, auth.Basic{Username: "jane", Password: "pa55"}, s)})
	}, start: `<AssumeRoleWithLDAPIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">`,
		repeated: spaces, copies: 1200, message: tooLong},
	"Entra ID": {remote: func(s *longServer) (Remote, error) {
		login, err := AzureLoginFrom(map[string][]byte{"tenantId": []byte(azureTenant),
			"clientId": []byte(azureClient), "clientSecret": []byte("pa55"), "authorityHost": []byte(s.URL)},
			s.URL, s, nil)
		if err != nil {
			return nil, err
		}
		return s.azure(login)
	}, start: "{", repeated: spaces, copies: 1200, message: tooLong},
}

func TestResponsesOfProvidersAreBounded(t *testing.T) {
	for name, c := range longCases {
		t.Run(name, func(t *testing.T) {
			s := newLong(t, c)
			remote, err := c.remote(s)
			if err != nil {
				t.Fatal(err)
			}
			_, err = open(t, t.TempDir()).List(t.Context(), remote, "", nil)
			if c.message != "" && (fault.As(err) == nil || !strings.Contains(err.Error(), c.message) ||
				strings.Contains(err.Error(), "pa55")) {
				t.Errorf("got %v, want %q", err, c.message)
			}
			if n := s.read.Load(); n > attempts*(maxResponse+1) {
				t.Errorf("%d bytes of at most %d responses were read", n, attempts)
			}
		})
	}
}

// TestContentsAreNotBounded fetches an object that is larger than other responses may be.
func TestContentsAreNotBounded(t *testing.T) {
	for name, remote := range map[string]func(*longServer) (Remote, error){
		"S3":    func(s *longServer) (Remote, error) { return s.s3("us-east-1") },
		"GCS":   (*longServer).gcs,
		"Azure": func(s *longServer) (Remote, error) { return s.azure(AzureLogin{}) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newLong(t, longCase{repeated: "<Contents/>" + long, copies: 1200})
			r, err := remote(s)
			if err != nil {
				t.Fatal(err)
			}
			body, err := r.Get(t.Context(), Object{Name: "a.yaml", ETag: "1", Size: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer body.Close()
			want := int64(1200 * len("<Contents/>"+long))
			if n, err := io.Copy(io.Discard, body); err != nil || n != want {
				t.Errorf("read %d bytes, want %d: %v", n, want, err)
			}
		})
	}
}
