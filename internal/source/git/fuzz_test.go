package git

import (
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"

	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func FuzzParseRevision(f *testing.F) {
	f.Add("main@sha1:" + strings.Repeat("a", 40))
	f.Add("feature/x/" + strings.Repeat("b", 40))
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRevision(s)
		if err != nil {
			return
		}
		again, err := ParseRevision(r.String())
		if err != nil || again != r {
			t.Errorf("%q parses as %v, which parses as %v, %v", s, r, again, err)
		}
	})
}

func FuzzParseTree(f *testing.F) {
	f.Add([]byte("100644 a.yaml\x00" + strings.Repeat("h", 20) + "40000 dir\x00" + strings.Repeat("i", 20)))
	f.Add([]byte("160000 ..\x00" + strings.Repeat("h", 20)))
	f.Fuzz(func(t *testing.T, data []byte) {
		listing, err := parseTree(data, 100)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, e := range listing {
			if seen[e.name] || e.name == "" || e.name == "." || e.name == ".." || strings.ContainsAny(e.name, "/\x00") {
				t.Errorf("%q contains the name %q", data, e.name)
			}
			seen[e.name] = true
		}
	})
}

func FuzzReference(f *testing.F) {
	f.Add("v1.2.3", ">=1.0", "refs/tags/v1.2.3")
	f.Add("release/\xff", "~1 || *", "refs/pull/1/head")
	f.Fuzz(func(t *testing.T, tag, semver, name string) {
		commit := plumbing.NewHash(strings.Repeat("1", 40))
		refs := packp.NewAdvRefs()
		refs.References["refs/tags/"+tag] = commit
		for _, ref := range []Reference{{SemVer: semver}, {Name: name}, {Tag: tag}, {Commit: name}, {Branch: name}} {
			found, err := ref.resolve(refs)
			if err == nil && found.Commit != commit.String() && ref.Commit == "" {
				t.Errorf("%+v resolves to %+v", ref, found)
			}
			if err != nil && fault.As(err) == nil {
				t.Errorf("%+v: the error is not a fault: %v", ref, err)
			}
		}
	})
}
