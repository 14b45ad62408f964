package provider

import (
	"cmp"
	"context"
	"encoding/json"
	"regexp"
	"strings"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/expression"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/githost"
	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// commitStatus tells a git host how it stands with a commit.
type commitStatus struct {
	host   *githost.Client
	name   *expression.Expression // of the status; nil for the usual
	object map[string]any
	suffix string // makes the usual names unique to the Provider, as clusters may say something of one commit
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
				return nil, badExpression("is not valid", err)
			}
		}
		return s, nil
	}
}

// Send implements [Provider]. An event that is about no commit is none of the host's.
func (s *commitStatus) Send(ctx context.Context, e event.Event) error {
	commit := commitOf(e)
	if commit == "" {
		return nil
	}
	name, err := s.nameOf(ctx, e)
	if err != nil {
		return err
	}
	return ofGitHost(s.host.SetStatus(ctx, githost.Status{Commit: commit, State: stateOf(e), Context: name,
		Description: line(cmp.Or(e.Message, e.Reason))}))
}

// nameOf is the name of the status: what the expression gives, else KIND/NAME and the start of the Provider's UID.
func (s *commitStatus) nameOf(ctx context.Context, e event.Event) (string, error) {
	if s.name == nil {
		return strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name + s.suffix, nil
	}
	document, err := documentOf(e)
	if err != nil {
		return "", err
	}
	alert, _ := ctx.Value(alertKey{}).(map[string]any)
	name, err := s.name.Text(ctx, expression.Map{"event": document, "alert": alert, "provider": s.object})
	if err != nil {
		return "", badExpression("fails", err)
	}
	if name = line(name); name == "" {
		return "", badExpression("gives no name", nil)
	}
	return name, nil
}

type alertKey struct{}

// WithAlert gives [Provider.Send] the Alert that wants the event, for spec.commitStatusExpr.
func WithAlert(ctx context.Context, alert map[string]any) context.Context {
	return context.WithValue(ctx, alertKey{}, alert)
}

// documentOf is the event as it is sent, for expressions.
func documentOf(e event.Event) (map[string]any, error) {
	var document map[string]any
	raw, err := json.Marshal(e)
	if err == nil {
		err = json.Unmarshal(raw, &document)
	}
	if err != nil {
		return nil, invalid("the event cannot be written as JSON").Because(err)
	}
	return document, nil
}

func badExpression(how string, err error) error {
	f := fault.New(meta.InvalidCELExpressionReason, "the expression for the name of commit statuses %s", how).
		WithHint("Correct spec.commitStatusExpr").Final()
	if err != nil {
		f = f.Because(err)
	}
	return f
}

// gitRevision finds the commit of a revision: main@sha1:<commit>, sha1:<commit>, and main/<commit> of older
// versions. A digest is no commit.
var gitRevision = regexp.MustCompile(`^(?:.*[@/])?(?:sha1:)?([0-9a-f]{40})$`)

// commitOf is the commit that an event is about; empty if there is none. Of an artifact, it is the one that
// it was made of.
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
