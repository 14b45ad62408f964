package probe

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/egress"
	"github.com/sluice-gitops/sluice/internal/expression"
)

func via(t *testing.T, p *egress.Policy) http.RoundTripper {
	t.Helper()
	transport, err := p.Transport(egress.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return transport
}

func serve(t *testing.T, handle http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	return s.URL
}

func TestHTTP(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			fmt.Fprint(w, "s3cret")
		}
	}
	open := &egress.Policy{RefuseLinkLocal: true}
	for name, c := range map[string]struct {
		policy *egress.Policy
		url    string
		says   string // of the error; empty: it holds
	}{
		"200":      {open, serve(t, status(200)), ""},
		"299":      {open, serve(t, status(299)), ""},
		"404":      {open, serve(t, status(404)), "status 404"},
		"metadata": {open, "http://169.254.169.254/", "link-local"},
		"by a redirect": {open, serve(t, http.RedirectHandler("http://[::ffff:169.254.169.254]/", http.StatusFound).
			ServeHTTP), "link-local"},
		"loopback":    {&egress.Policy{RefuseLoopback: true}, serve(t, status(200)), "loopback"},
		"by a name":   {&egress.Policy{RefuseLoopback: true}, "http://localhost:1/", "loopback"},
		"unspecified": {&egress.Policy{RefuseLoopback: true}, "http://0.0.0.0:1/", "loopback"},
		"a file":      {open, "file:///etc/passwd", "no HTTP URL"},
		"a login":     {open, "http://me:s3cret@example.com/", "secretRef"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := HTTP(t.Context(), via(t, c.policy), c.url, Login{})
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("got %v, want %q", err, c.says)
			}
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("a secret is told: %v", err)
			}
		})
	}
	t.Run("hangs", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		url := serve(t, func(_ http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() })
		if _, err := HTTP(ctx, via(t, open), url, Login{}); err == nil {
			t.Error("it holds")
		}
	})
	t.Run("logins stay where they are meant for", func(t *testing.T) {
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
		if _, err := HTTP(t.Context(), via(t, open), here,
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
	for name, c := range map[string]struct{ answer, says string }{
		"below":        {vector("0.1", "-3"), ""},
		"a scalar":     {`{"status":"success","data":{"resultType":"scalar","result":[1,"0.1"]}}`, ""},
		"equal":        {vector("0.5"), "not below"},
		"one above":    {vector("0.1", "7"), "gives 7, which is not below 0.5"},
		"not a number": {vector("NaN"), "not below"},
		"without end":  {vector("+Inf"), "not below"},
		"no value":     {vector(), "no value"},
		"a matrix": {`{"status":"success","data":{"resultType":"matrix","result":[]}}`,
			"no numbers of one time"},
		"another service": {`<html>`, "not one of Prometheus"},
		"a failure":       {`{"status":"error"}`, "not one of Prometheus"},
		"nonsense": {`{"status":"success","data":{"resultType":"vector","result":[{"value":["1",2]}]}}`,
			"not one of Prometheus"},
		"too much": {strings.Repeat(" ", maxAnswer+1), "larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/prometheus/api/v1/query" || r.URL.Query().Get("query") != `sum(a{b="c"})` {
					w.WriteHeader(404)
				}
				fmt.Fprint(w, c.answer)
			})
			_, err := Prometheus(t.Context(), via(t, &egress.Policy{}), url+"/prometheus/", `sum(a{b="c"})`, 0.5,
				Login{})
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}

func TestObject(t *testing.T) {
	secret := map[string]any{"kind": "Secret", "data": map[string]any{"k": "s3cret"}}
	for source, says := range map[string]string{
		`object.data.k == "s3cret"`:  "",
		`object.data.k == "else"`:    "the expression is false",
		`int(object.data.k) > 1`:     "the expression has no value",
		`object.data.other == "abc"`: "the expression has no value",
	} {
		compiled, err := expression.Compile(source, "object")
		if err != nil {
			t.Fatal(err)
		}
		_, err = Object(t.Context(), compiled, secret)
		if says == "" && err != nil || says != "" && (err == nil || err.Error() != says) {
			t.Errorf("%s: got %v, want %q", source, err, says)
		}
	}
}

func FuzzValues(f *testing.F) {
	f.Add([]byte(`{"status":"success","data":{"resultType":"vector","result":[{"value":[1,"2"]}]}}`))
	f.Add([]byte(`{"status":"success","data":{"resultType":"scalar","result":null}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if values, err := readValues(body); err != nil && values != nil {
			t.Errorf("%v and %v", values, err)
		}
	})
}
