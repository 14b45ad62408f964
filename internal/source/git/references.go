package git

import (
	"context"
	"strings"

	"github.com/sluice-gitops/sluice/internal/source/git/wire"
)

// Commits returns the branches and the tags of a remote with their commits. It fetches nothing. The error is a fault.
func Commits(ctx context.Context, remote Remote) (branches, tags map[string]string, err error) {
	conn, err := wire.Dial(ctx, remote)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	branches, tags = map[string]string{}, map[string]string{}
	for name, hash := range conn.Refs.References {
		if peeled, ok := conn.Refs.Peeled[name]; ok {
			hash = peeled
		}
		if short, ok := strings.CutPrefix(name, branchPrefix); ok {
			branches[short] = hash.String()
		} else if short, ok := strings.CutPrefix(name, tagPrefix); ok {
			tags[short] = hash.String()
		}
	}
	return branches, tags, nil
}
