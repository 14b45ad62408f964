package probe

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/build/expression"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
)

func transport(t *testing.T, p *egress.Policy) http.RoundTripper {
	t.Helper()
	rt, err := p.Transport(egress.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return rt
}

func serve(t *testing.T, handle http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	return s.URL
}

// httpProbe is a case of TestHTTP.
type httpProbe struct {
	policy *egress.Policy
	url    string
	err    string // empty: none
}

func httpProbes(t *testing.T, open *egress.Policy, status func(code int) http.HandlerFunc) map[string]httpProbe {
	return map[string]httpProbe{
		"200":      {policy: open, url: serve(t, status(200))},
		"299":      {policy: open, url: serve(t, status(299))},
		"404":      {policy: open, url: serve(t, status(404)), err: "status 404"},
		"metadata": {policy: open, url: "http://169.254.169.254/", err: "link-local"},
		"redirect to metadata": {policy: open,
			url: serve(t, http.RedirectHandler("http://[::ffff:169.254.169.254]/", http.StatusFound).
				ServeHTTP), err: "link-local"},
		"loopback": {policy: &egress.Policy{RefuseLoopback: true}, url: serve(t, status(200)),
			err: "loopback"},
		"loopback by name": {policy: &egress.Policy{RefuseLoopback: true}, url: "http://localhost:1/",
			err: "loopback"},
		"unspecified": {policy: &egress.Policy{RefuseLoopback: true}, url: "http://0.0.0.0:1/",
			err: "loopback"},
		"file URL":               {policy: open, url: "file:///etc/passwd", err: "not an HTTP URL"},
		"credentials in the URL": {policy: open, url: "http://me:s3cret@example.com/", err: "secretRef"},
	}
}

func TestHTTP(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			fmt.Fprint(w, "s3cret")
		}
	}
	open := &egress.Policy{RefuseLinkLocal: true}
	for name, c := range httpProbes(t, open, status) {
		t.Run(name, func(t *testing.T) {
			_, err := HTTP(t.Context(), transport(t, c.policy), c.url, Login{})
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("got %v, want %q", err, c.err)
			}
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the error contains a secret: %v", err)
			}
		})
	}
	t.Run("no response", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		url := serve(t, func(_ http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() })
		if _, err := HTTP(ctx, transport(t, open), url, Login{}); err == nil {
			t.Error("no error")
		}
	})
	t.Run("credentials are not sent to other hosts", func(t *testing.T) {
		elsewhere := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "" {
				w.WriteHeader(400)
			}
		})
		here := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer t0ken" {
				w.WriteHeader(401)
				return
			}
			http.Redirect(w, r, elsewhere, http.StatusFound)
		})
		if _, err := HTTP(t.Context(), transport(t, open), here,
			Login{Bearer: "t0ken", Basic: auth.Basic{Username: "me", Password: "x"}}); err != nil {
			t.Error(err)
		}
	})
}

func TestPrometheus(t *testing.T) {
	vector := func(values ...string) string {
		var samples []string
		for _, v := range values {
			samples = append(samples, fmt.Sprintf(`{"metric":{"__name__":"a"},"value":[1700000000.1,%q]}`, v))
		}
		return `{"status":"success","data":{"resultType":"vector","result":[` + strings.Join(samples, ",") + `]}}`
	}
	for name, c := range map[string]struct{ response, err string }{
		"below":        {response: vector("0.1", "-3")},
		"scalar":       {response: `{"status":"success","data":{"resultType":"scalar","result":[1,"0.1"]}}`},
		"equal":        {response: vector("0.5"), err: "not below"},
		"one above":    {response: vector("0.1", "7"), err: "returned 7, which is not below 0.5"},
		"not a number": {response: vector("NaN"), err: "not below"},
		"infinite":     {response: vector("+Inf"), err: "not below"},
		"no value":     {response: vector(), err: "no value"},
		"matrix": {response: `{"status":"success","data":{"resultType":"matrix","result":[]}}`,
			err: "neither an instant vector nor a scalar"},
		"not JSON":     {response: `<html>`, err: "not a valid Prometheus response"},
		"error status": {response: `{"status":"error"}`, err: "not a valid Prometheus response"},
		"invalid samples": {response: `{"status":"success","data":{"resultType":"vector",` +
			`"result":[{"value":["1",2]}]}}`,
			err: "not a valid Prometheus response"},
		"too large": {response: strings.Repeat(" ", maxResponse+1), err: "larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/prometheus/api/v1/query" || r.URL.Query().Get("query") != `sum(a{b="c"})` {
					w.WriteHeader(404)
				}
				fmt.Fprint(w, c.response)
			})
			_, err := Prometheus(t.Context(), transport(t, &egress.Policy{}), url+"/prometheus/", `sum(a{b="c"})`, 0.5,
				Login{})
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("got %v, want %q", err, c.err)
			}
		})
	}
}

func TestObject(t *testing.T) {
	secret := map[string]any{"kind": "Secret", "data": map[string]any{"k": "s3cret"}}
	for source, want := range map[string]string{
		`object.data.k == "s3cret"`:  "",
		`object.data.k == "else"`:    "the expression is false",
		`int(object.data.k) > 1`:     "the expression failed",
		`object.data.other == "abc"`: "the expression failed",
	} {
		compiled, err := expression.Compile(source, "object")
		if err != nil {
			t.Fatal(err)
		}
		_, err = Object(t.Context(), compiled, secret)
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%s: got %v, want %q", source, err, want)
		}
	}
}

func FuzzValues(f *testing.F) {
	f.Add([]byte(`{"status":"success","data":{"resultType":"vector","result":[{"value":[1,"2"]}]}}`))
	f.Add([]byte(`{"status":"success","data":{"resultType":"scalar","result":null}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if values, err := readValues(body); err != nil && values != nil {
			t.Errorf("both values %v and error %v", values, err)
		}
	})
}
