// Package s3server provides tests with an S3 server.
package s3server

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// Keys of the only account of an S3 server.
const (
	AccessKey = "playground"
	SecretKey = "playground-secret"
)

// Server is an S3 server.
type Server struct {
	tb       testing.TB
	Dir      string
	URL      string // http(s)://host:port
	Endpoint string // host:port
	CA       []byte // PEM of the certificate authority, with --tls-dir
	Client   *minio.Client
	http     *http.Client
	stop     func()
}

// New starts an S3 server without buckets. args are further flags of `playground s3`.
func New(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return Serve(tb, tb.TempDir(), args...)
}

// Serve starts an S3 server for the buckets of an existing directory.
func Serve(tb testing.TB, dir string, args ...string) *Server {
	tb.Helper()
	c, err := testenv.StartPlayground(append([]string{"s3", "--dir", dir}, args...)...)
	if err != nil {
		tb.Fatalf("cannot start the S3 server: %v", err)
	}
	tb.Cleanup(c.Stop)
	s := &Server{tb: tb, Dir: dir, URL: c.Printed[0], stop: c.Stop}
	roots := x509.NewCertPool()
	if i := slices.Index(args, "--tls-dir"); i >= 0 {
		if s.CA, err = os.ReadFile(filepath.Join(args[i+1], "ca.crt")); err != nil {
			tb.Fatal(err)
		}
		roots.AppendCertsFromPEM(s.CA)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	tb.Cleanup(transport.CloseIdleConnections)
	s.http = &http.Client{Transport: transport}
	scheme, endpoint, _ := strings.Cut(s.URL, "://")
	s.Endpoint = endpoint
	s.Client, err = minio.New(endpoint, &minio.Options{
		Creds: credentials.NewStaticV4(AccessKey, SecretKey, ""), Secure: scheme == "https", Transport: transport,
		Region: "us-east-1",
	})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// Stop stops the server.
func (s *Server) Stop() { s.stop() }

// MakeBucket creates a bucket.
func (s *Server) MakeBucket(name string) {
	s.tb.Helper()
	if err := s.Client.MakeBucket(s.tb.Context(), name, minio.MakeBucketOptions{}); err != nil {
		s.tb.Fatal(err)
	}
}

// Put writes objects of a bucket, or deletes those with the content [testenv.Delete]. It creates the bucket if it
// does not exist.
func (s *Server) Put(bucket string, objects map[string]string) {
	s.tb.Helper()
	exists, err := s.Client.BucketExists(s.tb.Context(), bucket)
	if err != nil {
		s.tb.Fatal(err)
	}
	if !exists {
		s.MakeBucket(bucket)
	}
	for name, content := range objects {
		if err := s.put(s.tb.Context(), bucket, name, content); err != nil {
			s.tb.Fatalf("object %s: %v", name, err)
		}
	}
}

func (s *Server) put(ctx context.Context, bucket, name, content string) error {
	if content == testenv.Delete {
		return s.Client.RemoveObject(ctx, bucket, name, minio.RemoveObjectOptions{})
	}
	_, err := s.Client.PutObject(ctx, bucket, name, bytes.NewReader([]byte(content)), int64(len(content)),
		minio.PutObjectOptions{})
	return err
}

// Stats returns the server's counters: lists, gets, heads, puts, deletes, others and bytesSent.
func (s *Server) Stats() map[string]int64 {
	s.tb.Helper()
	resp, err := s.http.Get(s.URL + "/-/stats")
	if err != nil {
		s.tb.Fatal(err)
	}
	defer resp.Body.Close()
	stats := map[string]int64{}
	if err := json.NewDecoder(resp.Body).Decode(&stats); err != nil {
		s.tb.Fatal(err)
	}
	return stats
}
