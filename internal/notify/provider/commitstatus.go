package provider

import (
	"cmp"
	"context"
	"encoding/json"
	"regexp"
	"strings"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/build/expression"
	"github.com/sluice-gitops/sluice/internal/githost"
	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// commitStatus sets the status of a commit on a git host.
type commitStatus struct {
	host   *githost.Client
	name   *expression.Expression // spec.commitStatusExpr; nil for the default name
	object map[string]any
	suffix string // makes default names unique, since several clusters may report the same commit
}

func statusAt(kind githost.Kind) func(Options) (Provider, error) {
	return func(o Options) (Provider, error) {
		host, err := newGitHost(kind, o)
		if err != nil {
			return nil, err
		}
		s := &commitStatus{host: host, object: o.Object}
		if first, _, _ := strings.Cut(o.UID, "-"); first != "" {
			s.suffix = "/" + first
		}
		if o.CommitStatus != "" {
			if s.name, err = expression.CompileText(o.CommitStatus, "event", "alert", "provider"); err != nil {
				return nil, invalidExpression("is not valid", err)
			}
		}
		return s, nil
	}
}

// Send implements [Provider]. Events without a commit are skipped.
func (s *commitStatus) Send(ctx context.Context, e event.Event) error {
	commit := commitOf(e)
	if commit == "" {
		return nil
	}
	name, err := s.nameOf(ctx, e)
	if err != nil {
		return err
	}
	return fromGitHost(s.host.SetStatus(ctx, githost.Status{Commit: commit, State: stateOf(e), Context: name,
		Description: singleLine(cmp.Or(e.Message, e.Reason))}))
}

// nameOf returns the name of the status: the result of the expression, or KIND/NAME and the start of the Provider's
// UID.
func (s *commitStatus) nameOf(ctx context.Context, e event.Event) (string, error) {
	if s.name == nil {
		return strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name + s.suffix, nil
	}
	document, err := eventDocument(e)
	if err != nil {
		return "", err
	}
	name, err := s.name.Text(ctx, expression.Map{"event": document, "alert": e.Alert, "provider": s.object})
	if err != nil {
		return "", invalidExpression("fails", err)
	}
	if name = singleLine(name); name == "" {
		return "", invalidExpression("returns an empty name", nil)
	}
	return name, nil
}

// eventDocument returns the event as a variable of expressions.
func eventDocument(e event.Event) (map[string]any, error) {
	var document map[string]any
	raw, err := json.Marshal(e)
	if err == nil {
		err = json.Unmarshal(raw, &document)
	}
	if err != nil {
		return nil, invalid("cannot encode the event as JSON").Because(err)
	}
	return document, nil
}

func invalidExpression(how string, err error) error {
	f := fault.New(meta.InvalidCELExpressionReason, "the expression for commit status names %s", how).
		WithHint("Correct spec.commitStatusExpr. It can use event, alert and provider, and must return a text").Final()
	if err != nil {
		f = f.Because(err)
	}
	return f
}

// gitRevision matches the commit of a revision: main@sha1:<commit>, sha1:<commit>, or main/<commit> of older
// versions. Digests do not match.
var gitRevision = regexp.MustCompile(`^(?:.*[@/])?(?:sha1:)?([0-9a-f]{40})$`)

// commitOf returns the commit of an event, or an empty string. For an artifact it is the commit it was built from.
func commitOf(e event.Event) string {
	for _, key := range []string{event.Commit, event.OriginRevision, event.Revision} {
		if at := gitRevision.FindStringSubmatch(e.Metadata[key]); at != nil {
			return at[1]
		}
	}
	return ""
}

func stateOf(e event.Event) githost.State {
	switch {
	case e.Reason == meta.ProgressingReason:
		return githost.Pending
	case e.Severity == event.Error:
		return githost.Failure
	}
	return githost.Success
}
