package bucket

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/source/ignore"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/s3server"
)

func TestIgnoreRulesOfBucketsAreBounded(t *testing.T) {
	const hint = ". Use fewer rules: one for a directory excludes everything in it"
	many := strings.Repeat("a\n", 5001)
	for name, c := range map[string]struct {
		files map[string]string
		spec  *string
		want  string
	}{
		"large object": {files: map[string]string{"dir/.sourceignore": strings.Repeat("#", 1<<20+1)},
			want: `"dir/.sourceignore" exceeds the limit of 1048576 bytes` + hint},
		"many rules": {files: map[string]string{"dir/.sourceignore": many},
			want: `"dir/.sourceignore" exceeds the limit of 5000 rules for a directory` + hint},
		"many rules of the Bucket": {files: map[string]string{"a": "1"}, spec: &many,
			want: "spec.ignore exceeds the limit of 5000 rules for a directory" + hint},
	} {
		t.Run(name, func(t *testing.T) {
			s := s3server.New(t)
			s.Put("apps", c.files)
			_, err := open(t, t.TempDir()).List(t.Context(), remoteOf(t, s, "apps"), "", c.spec)
			if err == nil || err.Error() != "cannot apply the ignore rules of the bucket: "+c.want {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestCanceledContextEndsWalk(t *testing.T) {
	objects := make([]Object, 5_000)
	for i := range objects {
		objects[i].Name = fmt.Sprintf("file-%04d", i)
	}
	rules, err := ignore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	l := &lister{cache: open(t, t.TempDir()), left: 1}
	err = l.walk(testenv.CanceledAfter(t.Context(), 1_000), "", objects, rules)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
