package ui

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documentedRoute matches a row of the table of requests.
var documentedRoute = regexp.MustCompile("(?m)^\\| `(GET|POST) ([^`]+)` \\| ([^|]*)\\|")

// readParameter matches code that reads a parameter of a query.
var readParameter = regexp.MustCompile(`(?:\bq|values|Query\(\))(?:\.Get\(|\[)"([a-z]+)"[\])]`)

func TestAPIIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/ui-api.md")
	if err != nil {
		t.Fatal(err)
	}
	routes, parameters := []string{}, map[string]bool{}
	for _, row := range documentedRoute.FindAllStringSubmatch(string(page), -1) {
		routes = append(routes, row[1]+" /api/v1/"+row[2])
		for _, p := range regexp.MustCompile("`([a-z]+)`").FindAllStringSubmatch(row[3], -1) {
			parameters[p[1]] = true
		}
	}
	served := append(slices.Collect(maps.Keys((&Server{}).handlers())), "GET /api/v1/stream", "GET /api/v1/logs/stream",
		"GET /api/v1/reviews/stream", "GET /api/v1/objects/{kind}/{namespace}/{name}/artifact",
		"GET /api/v1/login") // of the login in a cluster
	slices.Sort(routes)
	slices.Sort(served)
	if !slices.Equal(routes, served) {
		t.Errorf("documented are\n%s\nserved are\n%s", strings.Join(routes, "\n"), strings.Join(served, "\n"))
	}
	read := map[string]bool{}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		code, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		for _, p := range readParameter.FindAllStringSubmatch(string(code), -1) {
			read[p[1]] = true
		}
	}
	if got, want := slices.Sorted(maps.Keys(parameters)), slices.Sorted(maps.Keys(read)); !slices.Equal(got, want) {
		t.Errorf("documented parameters are %q, read are %q", got, want)
	}
}
