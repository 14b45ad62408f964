package bucket

import (
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
)

func TestCheckNames(t *testing.T) {
	for message, names := range map[string][]string{
		"":                                  {"A", "Dir/a", "a", "a.b", "dir/b", "ä/ö"},
		"contains '.', '..' or empty parts": {"../a"},
		"not a valid path":                  {"a/../../b"},
		"or empty parts":                    {"a//b"},
		"has a backslash":                   {`a\..\b`},
		"an absolute path":                  {"/etc/passwd"},
		"not UTF-8":                         {"a\xff"},
		"a control character":               {"a\nb"},
		"a name that is too long":           {strings.Repeat("a/", 600)},
		"'a' conflicts with 'a/b': a file cannot be a directory as well. Rename one of them": {"a", "a-b", "a/b"},
		"'a/b' conflicts with": {"a/b", "a/b/c"},
		"'a' is listed twice":  {"a", "a"},
		"'.' has a name that is not a valid path: it contains '.', '..' or empty parts. Rename it, or exclude it " +
			"with spec.ignore or a .sourceignore object": {"."},
	} {
		var objects []Object
		for _, n := range names {
			objects = append(objects, Object{Name: n})
		}
		err := checkNames(objects)
		if message == "" && err != nil || message != "" && !strings.Contains(fmt.Sprint(err), message) {
			t.Errorf("%q: got %v, want %q", names, err, message)
		}
	}
}

// listing returns a bucket that lists the names, which need not be valid for files.
func listing(t *testing.T, names ...string) Remote {
	type object struct {
		Key, ETag string
		Size      int
	}
	answer := struct {
		XMLName      xml.Name `xml:"ListBucketResult"`
		EncodingType string
		Contents     []object
	}{EncodingType: "url"}
	for _, n := range names {
		answer.Contents = append(answer.Contents, object{Key: url.QueryEscape(n), ETag: `"1"`, Size: 1})
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = xml.NewEncoder(w).
			Encode(answer)
	}))
	t.Cleanup(server.Close)
	return newS3(t, S3{Endpoint: strings.TrimPrefix(server.URL, "http://"), Bucket: "apps", Region: "us-east-1",
		Insecure: true, Keys: NoKeys()})
}

func TestListRefusesInvalidNames(t *testing.T) {
	ignoreAll := "*"
	for _, name := range []string{"../../etc/cron.d/evil", "/root/.ssh/authorized_keys", `..\evil`, "a/\xff/b",
		"a//b"} {
		c := open(t, t.TempDir())
		if _, err := c.List(t.Context(), listing(t, "ok.yaml", name), "", nil); err == nil ||
			!strings.Contains(err.Error(), "Rename it, or exclude it") {
			t.Errorf("%q: got %v", name, err)
		}
		if _, err := c.List(t.Context(), listing(t, "ok.yaml", name), "", &ignoreAll); err != nil {
			t.Errorf("%q is excluded: %v", name, err)
		}
	}
}

// fixed is a bucket that lists names of empty objects.
type fixed []string

func (f fixed) ID() string { return "fixed" }
func (f fixed) List(_ context.Context, prefix string, visit func(Object) error) error {
	for _, n := range f {
		if strings.HasPrefix(n, prefix) {
			if err := visit(Object{Name: n, ETag: "1"}); err != nil {
				return err
			}
		}
	}
	return nil
}
func (f fixed) Get(context.Context, Object) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("")), nil
}

// FuzzListing checks that the tree of a listing has exactly the listed files.
func FuzzListing(f *testing.F) {
	f.Add("a\na/b\n../c\nd//e\n.sourceignore\nA", "", "*.md\n!/a")
	f.Add("dir/a\ndir.x\ndir-x\ndir/b/c\n/x", "dir", "/dir/b/")
	f.Fuzz(func(t *testing.T, text, prefix, rules string) {
		names := strings.Split(text, "\n")
		c := open(t, t.TempDir())
		l, err := c.List(t.Context(), fixed(names), prefix, &rules)
		if err != nil {
			return
		}
		tree, err := c.Tree(t.Context(), fixed(names), l)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, o := range l.Objects {
			if !fs.ValidPath(o.Name) || !strings.HasPrefix(o.Name, prefix) {
				t.Errorf("listed %q", o.Name)
			}
			want = append(want, o.Name)
		}
		slices.Sort(want)
		var got []string
		if err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				got = append(got, name)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("the tree has %q, want %q", got, want)
		}
	})
}
