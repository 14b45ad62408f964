package git

import (
	"strings"

	"github.com/sluice-gitops/sluice/internal/source/git/wire"
)

// Refspec says which reference of the remote gets what is at one of ours.
type Refspec struct {
	Source, Target string // in full
	Force          bool
}

// ParseRefspec reads [+]<source>:<target>, as git push has it. The error is a fault.
func ParseRefspec(s string) (Refspec, error) {
	spec := Refspec{}
	rest, force := strings.CutPrefix(s, "+")
	source, target, ok := strings.Cut(rest, ":")
	if !ok || CheckRef(target) != nil || source != "HEAD" && CheckRef(source) != nil {
		return spec, gitFault("'%s' is no refspec", wire.Printable(s)).
			WithHint("Write it as refs/heads/BRANCH:refs/heads/OTHER, with a + in front to push by force").Final()
	}
	return Refspec{Source: source, Target: target, Force: force}, nil
}
