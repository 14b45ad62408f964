package reflector_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/image/reflector"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// ask sends a request to the API and returns status and body of the response, which must match the OpenAPI document.
func (s *images) ask(path string, headers ...string) (int, []byte) {
	s.Helper()
	status, _, body := s.askFull(path, headers...)
	return status, body
}

func (s *images) askFull(path string, headers ...string) (int, http.Header, []byte) {
	s.Helper()
	var resp *http.Response
	testenv.Eventually(s, "a response", func() error { // the server starts asynchronously
		req, err := http.NewRequestWithContext(s.Context(), http.MethodGet, s.URL+path, nil)
		if err != nil {
			return err
		}
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		resp, err = http.DefaultClient.Do(req)
		return err
	})
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Fatal(err)
	}
	documented(s.T, path, resp, body)
	return resp.StatusCode, resp.Header, body
}

// documented validates a response against the OpenAPI document.
func documented(t *testing.T, path string, resp *http.Response, body []byte) {
	t.Helper()
	router := imagesRouter(t)
	u, err := url.Parse(path)
	if err != nil {
		t.Fatal(err)
	}
	req := &http.Request{Method: http.MethodGet, URL: u, Header: http.Header{}}
	route, parameters, err := router.FindRoute(req)
	if err != nil {
		t.Fatalf("%s is not documented: %v", path, err)
	}
	input := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: req, PathParams: parameters,
			Route: route},
		Status: resp.StatusCode, Header: resp.Header,
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	}
	if resp.StatusCode != http.StatusNotModified {
		input.SetBodyBytes(body)
	}
	if err := openapi3filter.ValidateResponse(t.Context(), input); err != nil {
		t.Errorf("%s: the response does not match the OpenAPI document: %v", path, err)
	}
}

func imagesRouter(t *testing.T) routers.Router {
	t.Helper()
	plain, err := yaml.YAMLToJSON(reflector.Document)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := openapi3.NewLoader().LoadFromData(plain)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	return router
}

// workload creates a Deployment with one container.
func (s *images) workload(called, image string) {
	s.Helper()
	labels := map[string]string{"app": called}
	s.Create(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: called},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				InitContainers: []corev1.Container{{Name: "init", Image: "busybox"}},
				Containers:     []corev1.Container{{Name: "web", Image: image}},
			}},
		}})
}

func TestConditionalRequests(t *testing.T) {
	s := newImages(t)
	s.Push("app", time.Now(), "1.0.0")
	s.ImageRepository("app")
	s.Scanned("app", 1)
	path := "/v1/namespaces/" + s.Namespace + "/imagerepositories/app/tags"
	status, header, body := s.askFull(path)
	if status != 200 || header.Get("ETag") == "" {
		t.Fatalf("%d %v %s", status, header, body)
	}
	if status, _, body := s.askFull(path, "If-None-Match", `"x", W/`+header.Get("ETag")); status != 304 ||
		len(body) > 0 {
		t.Errorf("%d %s, want 304", status, body)
	}
	s.Push("app", time.Now(), "1.1.0")
	s.RequestReconcile(&imagev1.ImageRepository{}, "app")
	s.Scanned("app", 2)
	if status, _, _ := s.askFull(path, "If-None-Match", header.Get("ETag")); status != 200 {
		t.Errorf("status %d, want the new list", status)
	}
	resp, err := http.Get(s.URL + "/v1/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if served, err := openapi3.NewLoader().LoadFromIoReader(resp.Body); err != nil || served.Paths.Len() != 4 {
		t.Errorf("the document is not served: %v", err)
	}
}

// answers is a list in a response.
type response struct {
	Items    []struct{ Name string }
	Continue string
	Total    int
}

func (s *images) names(path string) ([]string, response) {
	s.Helper()
	status, body := s.ask(path)
	var list response
	if err := json.Unmarshal(body, &list); err != nil || status != 200 {
		s.Fatalf("%s: %d %s", path, status, body)
	}
	names := []string{}
	for _, i := range list.Items {
		names = append(names, i.Name)
	}
	return names, list
}

func TestTagAPI(t *testing.T) {
	s := newImages(t)
	s.Push("app", time.Now(), "1.0.0", "1.1.0", "1.2.0", "dev")
	s.ImageRepository("app")
	s.ImagePolicy("app", "app", system.BySemVer("*"))
	s.Latest("app", "1.2.0")
	base := "/v1/namespaces/" + s.Namespace
	all, _ := s.names(base + "/imagerepositories/app/tags")
	some, _ := s.names(base + "/imagerepositories/app/tags?match=%5E1%5C.%5B01%5D")
	first, list := s.names(base + "/imagepolicies/app/candidates?limit=2")
	rest, last := s.names(base + "/imagepolicies/app/candidates?limit=2&continue=" + list.Continue)
	want := [][]string{{"1.0.0", "1.1.0", "1.2.0", "dev"}, {"1.0.0", "1.1.0"}, {"1.2.0", "1.1.0"}, {"1.0.0"}}
	if diff := cmp.Diff(want, [][]string{all, some, first, rest}); diff != "" || last.Continue != "" ||
		list.Total != 3 {
		t.Errorf("%s; %+v, %+v", diff, list, last)
	}
	for path, want := range map[string]int{
		"/imagerepositories/app/tags?match=(": 400, "/imagerepositories/app/tags?limit=0": 400,
		"/imagerepositories/app/tags?match=" + strings.Repeat("a", 1025): 400,
		"/imagerepositories/app/tags?limit=1001":                         400,
		"/imagerepositories/app/tags?continue=x":                         400, "/imagerepositories/none/tags": 404,
		"/imagerepositories/none":        404,
		"/imagepolicies/none/candidates": 404, "/workloads/secret/x/images": 404, "/workloads/deployment/x/images": 404,
		"/imagerepositories/app": 200,
	} {
		if status, body := s.ask(base + path); status != want {
			t.Errorf("%s: %d %s, want %d", path, status, body, want)
		}
	}
	t.Log("a continued list is refused after the tags changed")
	s.Push("app", time.Now(), "1.3.0")
	s.RequestReconcile(&imagev1.ImageRepository{}, "app")
	s.Latest("app", "1.3.0")
	if status, body := s.ask(base + "/imagepolicies/app/candidates?limit=2&continue=" + list.Continue); status != 410 {
		t.Errorf("%d %s, want 410", status, body)
	}
	s.workload("web", s.Registry.Host+"/app:1.1.0")
	if status, body := s.ask(base + "/workloads/deployment/web/images"); status != 200 ||
		!strings.Contains(string(body), `"newer":2`) {
		t.Errorf("%d %s, want two newer tags", status, body)
	}
}

func TestTagAPIAccess(t *testing.T) {
	s := newImages(t, func(o *options.Options) { o.Artifacts.CheckAccess = true })
	s.Push("app", time.Now(), "1.0.0")
	s.ImageRepository("app")
	s.Scanned("app", 1)
	s.ImagePolicy("app", "app", system.BySemVer("*"))
	s.Latest("app", "1.0.0")
	s.workload("web", s.Registry.Host+"/app:1.0.0")
	s.GrantGet("reader", imagev1.GroupVersion.Group, "imagerepositories", "app")
	s.GrantGet("operator", "apps", "deployments", "web")
	reader, operator := "Bearer "+s.ServiceAccountToken("reader"), "Bearer "+s.ServiceAccountToken("operator")
	base := "/v1/namespaces/" + s.Namespace
	for _, c := range []struct {
		who, token, path string
		status           int
	}{
		{who: "anonymous", path: "/imagerepositories/app/tags", status: 401},
		{who: "nonsense", token: "Bearer x.y.z", path: "/imagerepositories/app", status: 401},
		{who: "a reader", token: reader, path: "/imagerepositories/app/tags", status: 200},
		{who: "a reader of another kind", token: reader, path: "/imagepolicies/app/candidates", status: 403},
		{who: "a reader of nothing that is there", token: reader, path: "/imagerepositories/none/tags", status: 403},
		{who: "a reader", token: reader, path: "/workloads/deployment/web/images", status: 403},
		{who: "an operator", token: operator, path: "/workloads/deployment/web/images", status: 200},
		{who: "an operator", token: operator, path: "/imagerepositories/app/tags", status: 403},
	} {
		var headers []string
		if c.token != "" {
			headers = []string{"Authorization", c.token}
		}
		if status, body := s.ask(base+c.path, headers...); status != c.status ||
			strings.Contains(string(body), `"latest"`) {
			t.Errorf("%s: %s: %d %s, want %d and no policy without access", c.who, c.path, status, body, c.status)
		}
	}
}
