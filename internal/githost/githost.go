// Package githost is a client for the APIs of git hosts: commit statuses, change requests (pull requests and merge
// requests), comments on them, events that start workflows, and the creation of repositories and deploy keys.
//
// Each host has one file; this file has the common part. The package does not access the cluster.
package githost

import (
	"cmp"
	"context"
	"net/http"
	"regexp"
	"strings"

	"k8s.io/utils/clock"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Kind is the type of a git host, with the value of spec.type of a Provider.
type Kind string

// The kinds. GitHub Enterprise, self-hosted GitLab and Forgejo (Gitea) have the same APIs.
const (
	GitHub          Kind = "github"
	GitLab          Kind = "gitlab"
	Gitea           Kind = "gitea"
	Bitbucket       Kind = "bitbucket"       // Cloud
	BitbucketServer Kind = "bitbucketserver" // Data Center
	AzureDevOps     Kind = "azuredevops"
)

// State is the state of a commit status. Each host has its own names for the states.
type State int

// The states, which all hosts support.
const (
	Pending State = iota
	Success
	Failure
)

// Status is a commit status. A new status replaces an older one with the same context.
type Status struct {
	Commit      string // 40 or 64 hexadecimal digits
	State       State
	Context     string // name, unique for the commit; truncated to the limit of the host
	Description string // one line; truncated to the limit of the host
	URL         string // page with details; may be empty
}

// Comment is a comment on a change request.
type Comment struct {
	Request int    // number of the change request in the repository
	Key     string // identifies the comment: one with the same key is updated
	Body    string // Markdown; truncated to the limit of the host
}

// Request is a change request: a pull request or a merge request.
type Request struct {
	Head, Base  string // branches of the same repository
	Title, Body string // truncated to the limits of the host
	Labels      []string
}

// Options are the repository and the login.
type Options struct {
	Repository Repository
	Secret     map[string][]byte   // token, username and password, or githubApp…; see loginOf
	Username   string              // overrides the one in the Secret
	Identity   Login               // workload identity, for AzureDevOps without a login in the Secret
	Git        auth.GitCredentials // credentials of the clone, used without a login in the Secret
	Anonymous  bool                // without any login, requests are sent without one
	Apps       *auth.GitHubApps    // cache for tokens of GitHub Apps; may be nil
	Transport  http.RoundTripper   // from egress
	Clock      clock.PassiveClock
}

// Client is a client for one repository. Its errors are faults without credentials and URLs. They are terminal if
// the object, its Secret or the host must be changed.
type Client struct {
	host host
	repo Repository
}

// host is the API of a git host.
type host interface {
	limits() limits
	// latestStatus returns the current status of s.Context at s.Commit; nil if there is none.
	latestStatus(ctx context.Context, s Status) (*reportedStatus, error)
	setStatus(ctx context.Context, s Status) error
	// find returns the open change request of r's branches; nil if there is none.
	find(ctx context.Context, r Request) (*openRequest, error)
	open(ctx context.Context, r Request) (*openRequest, error)
	edit(ctx context.Context, o *openRequest, r Request) error
	addLabels(ctx context.Context, o *openRequest, labels []string) error

	requestLister
	pull(ctx context.Context, number int) (Pull, error)
	comments(ctx context.Context, request, page int) (all []comment, more bool, err error)
	createComment(ctx context.Context, request int, body string) error
	updateComment(ctx context.Context, request int, id int64, body string) error
}

// limits are the state names and limits of a host.
type limits struct {
	states         [3]string // by State
	contextMax     int       // characters
	descriptionMax int       // characters
	bodyMax        int       // characters of change requests, and of comments unless commentMax is set
	commentMax     int       // characters of comments
	plain          bool      // comments show HTML as text
	needsURL       bool      // a status must have a URL
	labels         bool      // change requests have labels
}

// comment returns the maximum number of characters of a comment.
func (l limits) comment() int { return cmp.Or(l.commentMax, l.bodyMax) }

// reportedStatus is a status as returned by the host.
type reportedStatus struct{ state, description, url string }

// openRequest is an existing change request.
type openRequest struct {
	ID        int64
	URL       string
	Title     string
	Body      string
	Labels    []string
	reviewers []any // Bitbucket removes reviewers that an update does not contain
	version   int   // Bitbucket Server only
}

type comment struct {
	ID   int64  `json:"id"`
	Body string `json:"body"`
}

const titleMax = 255 // characters, for all hosts

// New returns a client. The error is a fault.
func New(o Options) (*Client, error) {
	login, err := loginOf(o)
	if err != nil {
		return nil, err
	}
	newHost := newHosts[o.Repository.Kind]
	if newHost == nil {
		return nil, unknownKind(o.Repository.Kind)
	}
	return &Client{newHost(newREST(o, login), o.Repository), o.Repository}, nil
}

var newHosts = map[Kind]func(*rest, Repository) host{GitHub: newGitHub, GitLab: newGitLab, Gitea: newGitea,
	Bitbucket: newBitbucket, BitbucketServer: newBitbucketServer, AzureDevOps: newAzureDevOps}

var commitID = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// SetStatus sets the status of a commit, unless the host has the same status already.
func (c *Client) SetStatus(ctx context.Context, s Status) error {
	t := c.host.limits()
	if !commitID.MatchString(s.Commit) || s.Context == "" || int(s.State) >= len(t.states) || s.State < 0 {
		return failed("the status needs a commit, a context and a valid state").Final()
	}
	s.Context, s.Description = excerpt.Chars(singleLine(s.Context), t.contextMax),
		excerpt.Chars(singleLine(s.Description), t.descriptionMax)
	if s.URL == "" && t.needsURL {
		s.URL = c.repo.commitURL(s.Commit)
	}
	current, err := c.host.latestStatus(ctx, s)
	if err != nil {
		return err
	}
	if current != nil && *current == (reportedStatus{state: t.states[s.State], description: s.Description,
		url: s.URL}) {
		return nil
	}
	return c.host.setStatus(ctx, s)
}

// Comment creates a comment, or updates the one with the same key.
func (c *Client) Comment(ctx context.Context, m Comment) error {
	h := c.host
	if m.Request <= 0 || m.Key == "" {
		return failed("the comment needs a change request and a key").Final()
	}
	marker := "<!-- " + digest("comment", m.Key) + " -->"
	if h.limits().plain {
		marker = "[//]: # (" + digest("comment", m.Key) + ")\n" // a link that nothing refers to is not shown
	}
	body := marker + "\n" + excerpt.Chars(m.Body, h.limits().comment()-len(marker)-1)
	existing, err := first(func(page int) ([]comment, bool, error) { return h.comments(ctx, m.Request, page) },
		func(m comment) bool { return strings.HasPrefix(m.Body, marker) })
	switch {
	case err != nil:
		return err
	case existing == nil:
		return h.createComment(ctx, m.Request, body)
	case existing.Body == body:
		return nil
	}
	return h.updateComment(ctx, m.Request, existing.ID, body)
}

// Dispatch starts the workflows of a GitHub repository that are triggered by an event type. The payload must be an
// object with at most ten fields.
func (c *Client) Dispatch(ctx context.Context, eventType string, payload any) error {
	h, ok := c.host.(*github)
	if !ok {
		return failed("repository_dispatch events are supported for GitHub only").Final()
	}
	return h.dispatch(ctx, eventType, payload)
}

// OpenRequest creates the change request of r's branches and returns the URL of its web page. If it exists, title
// and body are updated and missing labels are added.
func (c *Client) OpenRequest(ctx context.Context, r Request) (string, error) {
	t := c.host.limits()
	if r.Head == "" || r.Base == "" || r.Head == r.Base || strings.TrimSpace(r.Title) == "" {
		return "", failed("a change request needs two branches and a title").Final()
	}
	if len(r.Labels) > 0 && !t.labels {
		return "", failed("change requests of %s do not support labels", c.repo.Kind).
			WithHint("Remove spec.git.pullRequest.labels").Final()
	}
	r.Title, r.Body = excerpt.Chars(singleLine(r.Title), titleMax), excerpt.Chars(r.Body, t.bodyMax)
	o, err := c.host.find(ctx, r)
	if err != nil {
		return "", err
	}
	if o == nil {
		if o, err = c.host.open(ctx, r); err != nil {
			return "", err
		}
		if o.ID == 0 {
			return "", failed("%s did not create the change request", c.repo.Base.Host).
				WithHint(otherHostHint).Final()
		}
	} else if o.Title != r.Title || !equalText(o.Body, r.Body) {
		if err := c.host.edit(ctx, o, r); err != nil {
			return "", err
		}
	}
	if missing := missingFrom(r.Labels, o.Labels); len(missing) > 0 {
		if err := c.host.addLabels(ctx, o, missing); err != nil {
			return "", err
		}
	}
	return o.URL, nil
}

func failed(format string, args ...any) *fault.Fault {
	return fault.New(meta.FailedReason, format, args...)
}
