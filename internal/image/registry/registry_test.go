package registry_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/image/policy"
	"github.com/sluice-gitops/sluice/internal/image/registry"
	"github.com/sluice-gitops/sluice/internal/image/store"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const repo = "shop/web"

func TestScanReadsOnlyChangedPages(t *testing.T) {
	origin := ociregistry.New(t)
	push(t, origin, numbered(0, 35)...)
	f := newProxy(t, origin)
	r := open(t, hostOf(f.Server))

	first, fetched := scan(t, r, nil)
	if diff := cmp.Diff(numbered(0, 35), names(first)); diff != "" {
		t.Fatal(diff)
	}
	if got := strings.Join(f.takeStatuses(), " "); got != "200 200 200 200" || fetched != 4 {
		t.Errorf("%d pages by %s", fetched, got)
	}
	again, fetched := scan(t, r, first)
	if diff := cmp.Diff(names(first), names(again)); diff != "" {
		t.Error(diff)
	}
	if got := strings.Join(f.takeStatuses(), " "); got != "304 304 304 304" || fetched != 0 {
		t.Errorf("%d pages by %s, want one conditional request per page", fetched, got)
	}
	first.Pages[3].Tags[0].Digest = "sha256:" + strings.Repeat("a", 64)
	push(t, origin, "1.0.035")
	third, fetched := scan(t, r, first)
	if got := strings.Join(f.takeStatuses(), " "); got != "304 304 304 200" || fetched != 1 {
		t.Errorf("%d pages by %s, want only the last one", fetched, got)
	}
	if third.Len() != 36 || third.Pages[3].Tags[0].Digest == "" {
		t.Errorf("%d tags; known digest %q", third.Len(), third.Pages[3].Tags[0].Digest)
	}
}

func TestScanFindsPageAfterFullLastPage(t *testing.T) {
	origin := ociregistry.New(t)
	push(t, origin, numbered(0, 20)...)
	f := newProxy(t, origin)
	f.etagOfTags = true // the second page only gets a link to a third
	r := open(t, hostOf(f.Server))
	first, _ := scan(t, r, nil)
	push(t, origin, "1.0.020")
	if second, _ := scan(t, r, first); second.Len() != 21 {
		t.Errorf("found %d of 21 tags", second.Len())
	}
}

func TestRegistriesWithoutETags(t *testing.T) {
	origin := ociregistry.New(t)
	push(t, origin, numbered(0, 12)...)
	f := newProxy(t, origin)
	f.etags = false
	r := open(t, hostOf(f.Server))
	first, _ := scan(t, r, nil)
	if _, fetched := scan(t, r, first); fetched != 0 {
		t.Errorf("%d pages fetched, want 0", fetched)
	}
}

func TestExclusions(t *testing.T) {
	origin := ociregistry.New(t)
	push(t, origin, append(numbered(0, 12), "sha256-ab.sig", "pr-1")...)
	r := open(t, hostOf(newProxy(t, origin).Server))
	exclusions, err := registry.CompileExclusions([]string{`^.*\.sig$`, "^pr-"})
	if err != nil {
		t.Fatal(err)
	}
	without, _ := scan(t, r, nil, exclusions...)
	if diff := cmp.Diff(numbered(0, 12), names(without)); diff != "" {
		t.Error(diff)
	}
	with, _ := scan(t, r, without)
	if with.Len() != 14 {
		t.Errorf("%d tags without exclusions", with.Len())
	}
	if _, err := registry.CompileExclusions([]string{"("}); !fault.As(err).Terminal ||
		!strings.Contains(err.Error(), "spec.exclusionList") {
		t.Errorf("got %v", err)
	}
}

// invalidResponse is a case of TestScanRejectsInvalidResponses.
type invalidResponse struct {
	respond func(http.ResponseWriter, *http.Request) bool
	err     string
}

func invalidResponses(list func(next string, body string) func(http.ResponseWriter,
	*http.Request) bool) map[string]invalidResponse {
	return map[string]invalidResponse{
		"link to an earlier page": {respond: list("/v2/shop/web/tags/list?n=1000", `{"tags":["a$n"]}`),
			err: "links to an earlier page. Tags that were found before stay available. Check the registry"},
		"endless list": {respond: list("/v2/shop/web/tags/list?last=$n", `{"tags":["a","b"]}`),
			err: "page without new tags. Tags that were found before stay available. Check the registry"},
		"link to another repository": {respond: list("/v2/other/tags/list?n=1", `{"tags":["a"]}`),
			err: "not a tag list of this repository"},
		"not JSON":             {respond: list("", `<html>`), err: "not a JSON list"},
		"tags are not strings": {respond: list("", `{"tags":[1]}`), err: "not a JSON list"},
		"unexpected 304": {respond: func(w http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, "/tags/list") {
				w.WriteHeader(http.StatusNotModified)
			}
			return strings.HasSuffix(r.URL.Path, "/tags/list")
		}, err: "unconditional request"},
		"response too large": {respond: func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/tags/list") {
				return false
			}
			_, _ = io.WriteString(w, `{"tags":["`)
			for range 20 {
				_, _ = io.WriteString(w, strings.Repeat("a", 1<<20))
			}
			return true
		}, err: "the response of the registry is too long"},
	}
}

func TestScanRejectsInvalidResponses(t *testing.T) {
	origin := ociregistry.New(t)
	push(t, origin, numbered(0, 25)...)
	list := func(next, body string) func(http.ResponseWriter, *http.Request) bool {
		n := 0
		return func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/tags/list") {
				return false
			}
			n++
			if next != "" {
				w.Header().Set("Link", "<"+strings.ReplaceAll(next, "$n", fmt.Sprint(n))+`>; rel="next"`)
			}
			_, _ = io.WriteString(w, strings.ReplaceAll(body, "$n", fmt.Sprint(n)))
			return true
		}
	}
	for name, c := range invalidResponses(list) {
		t.Run(name, func(t *testing.T) {
			f := newProxy(t, origin)
			f.overrideWith(c.respond)
			_, err := open(t, hostOf(f.Server)).Scan(t.Context(), nil, nil)
			if err == nil || !strings.Contains(err.Error(), c.err) || fault.Reason(err, "") != "ReadOperationFailed" {
				t.Errorf("got error %v, want %q", err, c.err)
			}
		})
	}
	t.Run("invalid tags", func(t *testing.T) {
		f := newProxy(t, origin)
		f.overrideWith(list("", `{"tags":["ok","","a b","../x","`+strings.Repeat("a", 129)+`",".x"]}`))
		found, _ := scan(t, open(t, hostOf(f.Server)), nil)
		if diff := cmp.Diff([]string{"ok"}, names(found)); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("repository without tags", func(t *testing.T) {
		f := newProxy(t, origin)
		f.overrideWith(list("", `{"name":"shop/web","tags":null}`))
		if found, _ := scan(t, open(t, hostOf(f.Server)), nil); found.Len() != 0 {
			t.Errorf("found %v", names(found))
		}
	})
}

func TestScanRespectsRetryAfter(t *testing.T) {
	origin := ociregistry.New(t)
	push(t, origin, numbered(0, 35)...)
	f := newProxy(t, origin)
	n := 0
	f.overrideWith(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/tags/list") {
			n++
		}
		if n != 3 {
			return false
		}
		w.Header().Set("Retry-After", "600")
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	})
	r := open(t, hostOf(f.Server))
	_, err := r.Scan(t.Context(), nil, nil)
	if after := fault.As(err); after == nil || after.RetryAfter < time.Minute {
		t.Fatalf("got %v, want a fault with RetryAfter", err)
	}
	f.takeStatuses()
	f.overrideWith(nil)
	// Egress delays further requests to the host.
	if _, err := r.Scan(t.Context(), nil, nil); fault.As(err) == nil || len(f.takeStatuses()) > 0 {
		t.Fatalf("requested again too early: %v", err)
	}
}

func TestScanResumesAfterError(t *testing.T) {
	origin := ociregistry.New(t)
	push(t, origin, numbered(0, 35)...)
	f := newProxy(t, origin)
	n := 0
	f.overrideWith(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/tags/list") {
			n++
		}
		if n == 3 {
			w.WriteHeader(http.StatusInternalServerError)
		}
		return n == 3
	})
	r := open(t, hostOf(f.Server))
	if _, err := r.Scan(t.Context(), nil, nil); err == nil {
		t.Fatal("no error although a page is missing")
	}
	f.takeStatuses()
	found, _ := scan(t, r, nil)
	if got := strings.Join(f.takeStatuses(), " "); got != "200 200" || found.Len() != 35 {
		t.Errorf("%d tags by %s, want the two missing pages", found.Len(), got)
	}
}

func TestParseName(t *testing.T) {
	for image, want := range map[string]string{
		"ghcr.io/org/app": "ghcr.io/org/app", "alpine": "index.docker.io/library/alpine",
		"org/app":            "index.docker.io/org/app",
		"localhost:5000/app": "localhost:5000/app",
	} {
		if got, err := registry.ParseName(image, false); err != nil || got.Name() != want {
			t.Errorf("%s: %s, %v", image, got, err)
		}
	}
	for image, want := range map[string]string{
		"https://ghcr.io/org/app": "scheme", "ghcr.io/org/app:1.0": "a tag or a digest. Write it as " +
			"ghcr.io/org/app, without scheme, tag and digest",
		"ghcr.io/org/App": "not the name of an image repository", "": "not the name of an image repository",
		"oci://ghcr.io/org/app": "scheme", "ghcr.io/app@sha256:" + strings.Repeat("a", 64): "a tag or a digest",
	} {
		_, err := registry.ParseName(image, false)
		if f := fault.As(err); f == nil || f.Reason != "ImageURLInvalid" || !f.Terminal ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", image, err)
		}
	}
}

func TestReadRejectsWrongDigest(t *testing.T) {
	origin := ociregistry.New(t)
	push(t, origin, "a", "b")
	f := newProxy(t, origin)
	wrong := "sha256:" + strings.Repeat("0", 64)
	f.overrideWith(func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case strings.HasSuffix(r.URL.Path, "/manifests/"+wrong): // other content than requested
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			w.Header().Set("Docker-Content-Digest", wrong)
			_, _ = io.WriteString(w, `{"schemaVersion":2}`)
		case r.Method == http.MethodHead && strings.HasSuffix(r.URL.Path, "/manifests/a"):
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			w.Header().Set("Content-Length", "19")
			w.Header().Set("Docker-Content-Digest", wrong)
		default:
			return false
		}
		return true
	})
	r := open(t, hostOf(f.Server))
	_, err := r.Read(t.Context(), policy.Tag{Name: "a"}, func(string) (policy.Tag, bool) { return policy.Tag{}, false })
	if !errors.Is(err, registry.ErrUnreadable) {
		t.Errorf("content with a wrong digest was accepted: %v", err)
	}
	if digest, err := r.Current(t.Context(), "a"); err == nil && digest == wrong {
		t.Error("the digest was not computed from the manifest")
	}
}

// FuzzList checks that only valid tags are returned for any response.
func FuzzList(f *testing.F) {
	f.Add([]byte(`{"name":"a","tags":["1.0","1.0","x y"]}`), `</v2/shop/web/tags/list?last=a>; rel="next"`)
	f.Add([]byte(`{"tags":null}`), `<>;rel=next`)
	f.Add([]byte(`[]`), `<http://[::1/v2>; rel="prev next", <b>; rel=next`)
	f.Add([]byte{}, `<//host/v2/shop/web/tags/list?n=1>;REL=NEXT`)
	f.Fuzz(func(t *testing.T, body []byte, link string) {
		tags, next, err := registry.ParseList(body, link)
		if err != nil {
			return
		}
		for _, tag := range tags {
			if !regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$`).MatchString(tag.Name) {
				t.Errorf("invalid tag %q", tag.Name)
			}
		}
		if next != "" && !strings.HasPrefix(next, "/v2/shop/web/tags/list") {
			t.Errorf("next page %q", next)
		}
	})
}

// TestListsThatTakeMuchMemoryAreRefused checks a list that is small, but has millions of tags.
func TestListsThatTakeMuchMemoryAreRefused(t *testing.T) {
	body := `{"tags":["` + strings.Repeat(`a","`, 1_100_000) + `"]}`
	_, _, err := registry.ParseList([]byte(body), "")
	if err == nil || err.Error() != "a page of the list has more than 500000 tags" {
		t.Errorf("got %v", err)
	}
}

// TestScansWithMuchMemoryAreRefused checks tags that are fewer than allowed, but long.
func TestScansWithMuchMemoryAreRefused(t *testing.T) {
	testenv.Full(t)
	f := newProxy(t, ociregistry.New(t))
	long, pages := strings.Repeat("x", 118), 0
	f.overrideWith(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/tags/list") {
			return false
		}
		var list strings.Builder
		for i := range 90_000 {
			fmt.Fprintf(&list, `"%s-%d-%d",`, long, pages, i)
		}
		pages++
		w.Header().Set("Link", fmt.Sprintf(`<%s?last=%d>; rel="next"`, r.URL.Path, pages))
		_, _ = io.WriteString(w, `{"tags":[`+list.String()+`"z"]}`)
		return true
	})
	_, err := open(t, hostOf(f.Server)).Scan(t.Context(), nil, nil)
	want := fmt.Sprintf("take more than %s of memory. Exclude tags with spec.exclusionList, or narrow spec.filterTags "+
		"of policies that need more than names", guard.Bytes(store.MaxMemory()))
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v after %d pages, want %q", err, pages, want)
	}
}
