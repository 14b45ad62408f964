package policy_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/image/policy"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func semver(versions string) imagev1.ImagePolicyChoice {
	return imagev1.ImagePolicyChoice{SemVer: &imagev1.SemVerPolicy{Range: versions}}
}

func alphabetical(order string) imagev1.ImagePolicyChoice {
	return imagev1.ImagePolicyChoice{Alphabetical: &imagev1.OrderPolicy{Order: order}}
}

func numerical(order string) imagev1.ImagePolicyChoice {
	return imagev1.ImagePolicyChoice{Numerical: &imagev1.OrderPolicy{Order: order}}
}

func named(names ...string) []policy.Tag {
	var tags []policy.Tag
	for _, n := range names {
		tags = append(tags, policy.Tag{Name: n})
	}
	return tags
}

// each returns an iterator over tags.
func each(tags []policy.Tag) iter.Seq[*policy.Tag] {
	return func(yield func(*policy.Tag) bool) {
		for i := range tags {
			if !yield(&tags[i]) {
				return
			}
		}
	}
}

func order(t *testing.T, spec imagev1.ImagePolicySpec, tags []policy.Tag) []string {
	t.Helper()
	p, err := policy.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	ordered, err := p.Order(t.Context(), each(tags))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, o := range ordered {
		names = append(names, o.Name)
	}
	return names
}

func TestOrder(t *testing.T) {
	filter := func(pattern, extract string) *imagev1.TagFilter {
		return &imagev1.TagFilter{Pattern: pattern, Extract: extract}
	}
	for name, c := range map[string]struct {
		filter *imagev1.TagFilter
		policy imagev1.ImagePolicyChoice
		tags   string
		want   string
	}{
		"highest version": {policy: semver(">=1.0.0"),
			tags: "1.9.0 latest 1.10.0 v1.2.0 0.9.0 main-abc", want: "1.10.0 1.9.0 v1.2.0"},
		"versions of a range":       {policy: semver("5.0.x"), tags: "5.0.1 5.1.0 5.0.9 4.0.0", want: "5.0.9 5.0.1"},
		"no prereleases by default": {policy: semver(">=1.0.0"), tags: "1.0.0 1.1.0-rc.1", want: "1.0.0"},
		"prereleases": {policy: semver(">=1.0.0-0"),
			tags: "1.0.0-rc.2 1.0.0 1.0.0-rc.10 1.1.0-alpha", want: "1.1.0-alpha 1.0.0 1.0.0-rc.10 1.0.0-rc.2"},
		"prereleases that match a pattern": {filter: filter(`^\d+\.\d+\.\d+-rc`, ""), policy: semver("^1.x-0"),
			tags: "1.2.0 1.1.0-rc.1 1.1.0-beta 1.1.0-rc.2", want: "1.1.0-rc.2 1.1.0-rc.1"},
		"extracted versions": {filter: filter(`^app-(?P<v>.*)$`, "$v"), policy: semver("*"),
			tags: "app-1.2.0 app-1.10.0 2.0.0 app-x", want: "app-1.10.0 app-1.2.0"},
		"equal versions":          {policy: semver("*"), tags: "1.0.0 v1.0.0 1.0", want: "v1.0.0 1.0.0"},
		"dates and moving tags":   {policy: semver(">=2.0.0"), tags: "2.5.1 2.6.0 20240215 3", want: "2.6.0 2.5.1"},
		"alphabetical ascending":  {policy: alphabetical("asc"), tags: "b c a", want: "c b a"},
		"alphabetical default":    {policy: alphabetical(""), tags: "b c a", want: "c b a"},
		"alphabetical descending": {policy: alphabetical("desc"), tags: "b c a", want: "a b c"},
		"named group": {filter: filter(`^RELEASE\.(?P<timestamp>.*)Z$`, "$timestamp"),
			policy: alphabetical("asc"), tags: "RELEASE.2026-01Z RELEASE.2026-11Z x",
			want: "RELEASE.2026-11Z RELEASE.2026-01Z"},
		"one group of two": {filter: filter(`^(?P<a>\w+)-(\d+)$`, "$none$a"), policy: alphabetical("asc"),
			tags: "b-1 a-2", want: "b-1 a-2"},
		"numbered group": {filter: filter(`^(\w+)-(\d+)$`, "${2}"), policy: numerical("asc"), tags: "b-1 a-2",
			want: "a-2 b-1"},
		"pattern without extract": {filter: filter(`^main-`, ""), policy: alphabetical("asc"),
			tags: "main-a dev-z main-b",
			want: "main-b main-a"},
		"numerical ascending":  {policy: numerical("asc"), tags: "9 10 abc 1e5 -3 0x1", want: "10 9 -3"},
		"numerical descending": {policy: numerical("desc"), tags: "9 10 -3 -20", want: "-20 -3 9 10"},
		"long numbers": {policy: numerical("asc"),
			tags: "20261121120000123456 20261121120000123457", want: "20261121120000123457 20261121120000123456"},
		"decimals and zeros": {policy: numerical("asc"), tags: "1.5 01.25 1.250 -0 .5 5.",
			want: "1.5 1.250 01.25 -0"},
		"timestamp after a commit": {filter: filter(`^main-[a-f0-9]+-(?P<ts>[0-9]+)`, "$ts"),
			policy: numerical("asc"), tags: "main-abc-100 main-def-99 main-x-200", want: "main-abc-100 main-def-99"},
		"no tags": {policy: semver("*")},
	} {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(order(t, imagev1.ImagePolicySpec{FilterTags: c.filter, Policy: c.policy},
				named(strings.Fields(c.tags)...)), " ")
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

var built = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func detailed() []policy.Tag {
	return []policy.Tag{
		{Name: "a", Digest: "sha256:1", Created: built, Labels: map[string]string{"team": "shop"},
			Platforms: []string{"linux/amd64", "linux/arm64"}},
		{Name: "b", Digest: "sha256:2", Created: built.Add(time.Hour), Labels: map[string]string{},
			Platforms: []string{"linux/amd64"}},
		{Name: "c", Digest: "sha256:3", Created: built.Add(-time.Hour), Labels: map[string]string{"team": "shop"},
			Platforms: []string{"linux/arm64"}},
		{Name: "d"},
	}
}

func TestOrderByImageDetails(t *testing.T) {
	cel := func(filter, order string) imagev1.ImagePolicyChoice {
		return imagev1.ImagePolicyChoice{CEL: &imagev1.CELPolicy{Filter: filter, Order: order}}
	}
	created := func(order string) imagev1.ImagePolicyChoice {
		return imagev1.ImagePolicyChoice{CreatedAt: &imagev1.CreatedAtPolicy{Order: order}}
	}
	filtered := alphabetical("asc")
	filtered.CEL = &imagev1.CELPolicy{Filter: `"linux/arm64" in platforms`}
	for name, c := range map[string]struct {
		policy  imagev1.ImagePolicyChoice
		want    string
		details bool
	}{
		"newest":                    {policy: created("newest"), want: "b a c", details: true},
		"default order by creation": {policy: created(""), want: "b a c", details: true},
		"oldest":                    {policy: created("oldest"), want: "c a b", details: true},
		"filter by platform":        {policy: filtered, want: "c a", details: true},
		"filter by optional label": {policy: cel(`labels.?team.orValue("") == "shop"`, "created"),
			want: "a c", details: true},
		"filter by label that some images have": {policy: cel(`labels.team == "shop"`, "created"), want: "a c",
			details: true},
		"filter by digest": {policy: cel(`digest == "sha256:2"`, "tag"), want: "b", details: true},
		"filter by creation time": {policy: cel(`created > timestamp("2026-11-21T11:30:00Z")`, "size(platforms)"),
			want: "a b", details: true},
		"filter and order by name": {policy: cel(`tag != "d"`, `tag == "b" ? 2 : 1`), want: "b c a"},
		"order by number":          {policy: cel(``, `tag == "b" ? 2.5 : double(1)`), want: "b d c a"},
		"semver takes precedence over cel": {
			policy: imagev1.ImagePolicyChoice{SemVer: &imagev1.SemVerPolicy{Range: ">=0"},
				CEL: &imagev1.CELPolicy{Order: "tag"}}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := imagev1.ImagePolicySpec{Policy: c.policy}
			if got := strings.Join(order(t, spec, detailed()), " "); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			p, err := policy.New(spec)
			if err != nil {
				t.Fatal(err)
			}
			if p.NeedsDetails() != c.details {
				t.Errorf("NeedsDetails = %t", p.NeedsDetails())
			}
		})
	}
}

func TestInvalidPoliciesAreReported(t *testing.T) {
	with := func(p imagev1.ImagePolicyChoice) imagev1.ImagePolicySpec { return imagev1.ImagePolicySpec{Policy: p} }
	filter := func(pattern string) imagev1.ImagePolicySpec {
		return imagev1.ImagePolicySpec{Policy: alphabetical("asc"), FilterTags: &imagev1.TagFilter{Pattern: pattern}}
	}
	cel := func(filter, order string) imagev1.ImagePolicySpec {
		return with(imagev1.ImagePolicyChoice{CEL: &imagev1.CELPolicy{Filter: filter, Order: order}})
	}
	for name, c := range map[string]struct {
		spec        imagev1.ImagePolicySpec
		reason, err string
	}{
		"no order": {spec: with(imagev1.ImagePolicyChoice{}), reason: "InvalidPolicy",
			err: "has no order. Set one of semver, alphabetical, numerical, createdAt and cel.order"},
		"filter without order": {spec: cel("true", ""), reason: "InvalidPolicy", err: "has no order"},
		"invalid range": {spec: with(semver("latest")), reason: "InvalidPolicy",
			err: `spec.policy.semver.range 'latest' is not a version range: improper constraint: "latest". Write ` +
				"it as >=1.0.0 <2.0.0, or as >=1.0.0-0 to include prereleases"},
		"invalid regular expression": {spec: filter("(a"), reason: "InvalidPolicy", err: "spec.filterTags.pattern"},
		"regular expression too long": {spec: filter(strings.Repeat("a", 5000)), reason: "InvalidPolicy",
			err: "longer than 4096 bytes"},
		"no such group": {spec: imagev1.ImagePolicySpec{Policy: semver("*"), FilterTags: &imagev1.TagFilter{
			Pattern: `^v(?P<semver>.*)$`, Extract: "$version"}}, reason: "InvalidPolicy",
			err: "names group 'version', which spec.filterTags.pattern does not have. " +
				"Name a group of the pattern by (?P<name>…), and write ${name}. Without braces, letters, digits and " +
				"underscores that follow are part of the name"},
		"a name that goes on": {spec: imagev1.ImagePolicySpec{Policy: semver("*"), FilterTags: &imagev1.TagFilter{
			Pattern: `^(\d+)$`, Extract: "$1_0"}}, reason: "InvalidPolicy", err: "names group '1_0'"},
		"no such number": {spec: imagev1.ImagePolicySpec{Policy: semver("*"), FilterTags: &imagev1.TagFilter{
			Pattern: `^v\d+$`, Extract: "${1}"}}, reason: "InvalidPolicy", err: "names group '1'"},
		"regular expression too complex": {spec: filter("((a{1000}){1000}){1000}"), reason: "InvalidPolicy",
			err: "spec.filterTags.pattern"},
		"CEL syntax error": {spec: cel("tag ==", "tag"), reason: "InvalidCELExpression", err: "spec.policy.cel.filter"},
		"unknown CEL variable": {spec: cel("name == 'a'", "tag"), reason: "InvalidCELExpression",
			err: "undeclared reference to 'name'"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := policy.New(c.spec)
			if f := fault.As(err); f == nil || f.Reason != c.reason || !f.Terminal ||
				!strings.Contains(err.Error(), c.err) {
				t.Errorf("got error %v, want a terminal fault %s with %q", err, c.reason, c.err)
			}
		})
	}
	for name, c := range map[string]struct{ filter, order, err string }{
		"label that no image has": {filter: "labels.tier == 'web'", order: "tag",
			err: "no such key: tier. Check for missing values in the expression, such as " +
				"labels.?team.orValue('') == 'shop'"},
		"values of different types": {filter: "true", order: "tag == 'a' ? dyn(1) : dyn('x')",
			err: "cannot be compared: types int and string. Let the expression return a number, a string or a " +
				"timestamp for every tag"},
		"map values": {filter: "true", order: "labels", err: "cannot be compared"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := policy.New(cel(c.filter, c.order))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Order(t.Context(), each(detailed())); err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("got error %v, want %q", err, c.err)
			}
		})
	}
}

func TestOrderStopsWithContext(t *testing.T) {
	p, err := policy.New(imagev1.ImagePolicySpec{Policy: semver("*")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Order(ctx, each(named("1.0.0"))); err == nil {
		t.Error("no error after the context was cancelled")
	}
}

// FuzzFilterTags checks that Order returns only given tags, each at most once, for any pattern and template.
func FuzzFilterTags(f *testing.F) {
	f.Add(`^main-(?P<ts>[0-9]+)$`, "$ts", "main-1", "dev-2")
	f.Add(`(a*)*b`, "${1}$0$9", strings.Repeat("a", 128), "b")
	f.Add(`\`, "$", "", "x")
	f.Fuzz(func(t *testing.T, pattern, extract, one, two string) {
		p, err := policy.New(imagev1.ImagePolicySpec{FilterTags: &imagev1.TagFilter{Pattern: pattern, Extract: extract},
			Policy: numerical("asc")})
		if err != nil {
			if f := fault.As(err); f == nil || !f.Terminal {
				t.Fatalf("not a terminal fault: %v", err)
			}
			return
		}
		got, err := p.Order(t.Context(), each(named(one, two)))
		if len(got) > 2 || err != nil && (len(got) > 0 || fault.As(err) == nil) {
			t.Fatalf("%v, %v", got, err)
		}
		for _, tag := range got {
			if tag.Name != one && tag.Name != two || !p.Matches(tag.Name) {
				t.Fatalf("unexpected tag %q", tag.Name)
			}
		}
	})
}

func TestOrderIsIndependentOfInputOrder(t *testing.T) {
	tags := many(10_000)
	spec := imagev1.ImagePolicySpec{Policy: semver("*")}
	want := order(t, spec, tags)
	slices.Reverse(tags)
	if diff := cmp.Diff(want, order(t, spec, tags)); diff != "" {
		t.Error(diff)
	}
}

// many returns versions, prereleases and tags of commits.
func many(n int) []policy.Tag {
	tags := make([]policy.Tag, 0, n)
	for i := range n {
		name := fmt.Sprintf("v1.%d.%d", i/100, i%100)
		switch i % 4 {
		case 1:
			name = fmt.Sprintf("1.%d.%d-rc.%d", i/1000, i%1000, i%7)
		case 2:
			name = fmt.Sprintf("main-%07x-%d", i*7919, 1763700000+i)
		}
		tags = append(tags, policy.Tag{
			Name: name, Digest: fmt.Sprintf("sha256:%064x", i), Created: built.Add(time.Duration(i) * time.Minute),
			Labels: map[string]string{"team": "shop"}, Platforms: []string{"linux/amd64", "linux/arm64"},
		})
	}
	return tags
}

func BenchmarkOrder(b *testing.B) {
	tags := many(50_000)
	for name, spec := range map[string]imagev1.ImagePolicySpec{
		"semver": {Policy: semver(">=1.0.0-0")},
		"numerical": {Policy: numerical("asc"),
			FilterTags: &imagev1.TagFilter{Pattern: `^main-[a-f0-9]+-(?P<ts>[0-9]+)$`, Extract: "$ts"}},
		"createdAt": {Policy: imagev1.ImagePolicyChoice{CreatedAt: &imagev1.CreatedAtPolicy{}}},
		"cel": {Policy: imagev1.ImagePolicyChoice{
			CEL: &imagev1.CELPolicy{Filter: `"linux/arm64" in platforms && labels.team == "shop"`, Order: "created"}}},
	} {
		p, err := policy.New(spec)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if got, err := p.Order(b.Context(), each(tags)); err != nil || len(got) == 0 {
					b.Fatal(len(got), err)
				}
			}
		})
	}
}

func TestPlainTagWinsATie(t *testing.T) {
	spec := imagev1.ImagePolicySpec{Policy: semver(">=1.0.0"),
		FilterTags: &imagev1.TagFilter{Pattern: `(?P<v>\d+\.\d+\.\d+)`, Extract: "$v"}}
	tags := []policy.Tag{{Name: "1.2.3-debug"}, {Name: "1.2.3"}, {Name: "1.2.3-alpine"}, {Name: "1.2.2"}}
	if got := strings.Join(order(t, spec, tags), " "); got != "1.2.3 1.2.3-alpine 1.2.3-debug 1.2.2" {
		t.Errorf("got %q", got)
	}
}

func TestNumericalOrderNamesATagThatIsNoNumber(t *testing.T) {
	p, err := policy.New(imagev1.ImagePolicySpec{Policy: imagev1.ImagePolicyChoice{Numerical: &imagev1.OrderPolicy{}}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Order(t.Context(), slices.Values([]*policy.Tag{{Name: "latest"}}))
	if f := fault.As(err); f == nil || f.Terminal || !strings.Contains(err.Error(),
		"no tag is a number, for example 'latest' is none. Select tags with numbers by spec.filterTags.pattern, "+
			"and extract the number by spec.filterTags.extract") ||
		!strings.Contains(err.Error(), "'latest' is none. Select tags with numbers by spec.filterTags.pattern, "+
			"and extract the number by spec.filterTags.extract") {
		t.Errorf("got error %v", err)
	}
}
