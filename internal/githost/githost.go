// Package githost talks to the hosts of git repositories about what git itself does not hold: statuses of
// commits, comments on change requests, change requests (pull requests, merge requests), and the events that
// start workflows.
//
// Each host has one file, by what it documents; what is the same for all is here. The package reads no cluster.
package githost

import (
	"context"
	"net/http"
	"regexp"
	"strings"

	"k8s.io/utils/clock"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/excerpt"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// Kind is a kind of host, by the name that the field spec.type of a Provider has for it.
type Kind string

// The kinds. GitHub Enterprise, self-hosted GitLab and Forgejo (Gitea) speak as the hosts that they are named after.
const (
	GitHub          Kind = "github"
	GitLab          Kind = "gitlab"
	Gitea           Kind = "gitea"
	Bitbucket       Kind = "bitbucket"       // Cloud
	BitbucketServer Kind = "bitbucketserver" // Data Center
	AzureDevOps     Kind = "azuredevops"
)

// State is how it stands with a commit. Each host has its own words for it.
type State int

// The states that all hosts know.
const (
	Pending State = iota
	Success
	Failure
)

// Status is what is said of a commit. The latest of a context is the one that counts.
type Status struct {
	Commit      string // 40 or 64 hexadecimal digits
	State       State
	Context     string // what the status is about: its name, unique at the commit; cut to what the host takes
	Description string // one line; cut to what the host takes
	URL         string // where to read more; may be empty
}

// Comment is a comment on a change request.
type Comment struct {
	Request int    // number of the change request in the repository
	Key     string // tells the comment from others: one with the same key is changed in place
	Body    string // Markdown; cut to what the host takes
}

// Request is a change request: a pull request, or a merge request.
type Request struct {
	Head, Base  string // names of branches of the same repository
	Title, Body string // cut to what the host takes
	Labels      []string
}

// Options say which repository, and as whom.
type Options struct {
	Repository Repository
	Secret     map[string][]byte   // token; username and password; githubApp…: what counts is with each host's login
	Username   string              // in place of the Secret's
	Identity   Login               // of workload identity, for AzureDevOps when the Secret holds no login
	Git        auth.GitCredentials // with which the repository is cloned: they count when the Secret holds no login
	Apps       *auth.GitHubApps    // keeps the tokens of GitHub Apps
	Transport  http.RoundTripper   // from egress
	Clock      clock.PassiveClock
}

// Client speaks with the host of one repository. Its errors are faults that hold neither credentials nor
// URLs; those that only a change of the object, its Secret or the host helps are terminal.
type Client struct {
	host host
	repo Repository
}

// host is what the hosts differ in.
type host interface {
	terms() terms
	// latest is the last status of s.Context at s.Commit; nil when there is none.
	latest(ctx context.Context, s Status) (*said, error)
	say(ctx context.Context, s Status) error
	// find is the open change request of r's branches; nil when there is none.
	find(ctx context.Context, r Request) (*opened, error)
	open(ctx context.Context, r Request) (*opened, error)
	edit(ctx context.Context, o *opened, r Request) error
	label(ctx context.Context, o *opened, labels []string) error // adds them
}

// commenter is a host on whose change requests comments can be written.
type commenter interface {
	comments(ctx context.Context, request, page int) (all []comment, more bool, err error)
	comment(ctx context.Context, request int, body string) error
	recomment(ctx context.Context, request int, id int64, body string) error
}

// terms are the words and the limits of a host.
type terms struct {
	states         [3]string // by State
	contextMax     int       // characters
	descriptionMax int       // characters
	bodyMax        int       // characters of change requests and comments
	needsURL       bool      // a status must have a URL
	labels         bool      // change requests have labels
}

// said is a status in the words of its host.
type said struct{ state, description, url string }

// opened is a change request as its host tells it.
type opened struct {
	ID        int64
	URL       string
	Title     string
	Body      string
	Labels    []string
	reviewers []any // Bitbucket takes away those that a change does not name
	version   int   // of Bitbucket Server
}

type comment struct {
	ID   int64  `json:"id"`
	Body string `json:"body"`
}

const titleMax = 255 // characters, with all hosts

// New returns a client. The error is a fault.
func New(o Options) (*Client, error) {
	login, err := loginOf(o)
	if err != nil {
		return nil, err
	}
	r := newREST(o, login)
	var h host
	switch o.Repository.Kind {
	case GitHub:
		h = newGitHub(r, o.Repository)
	case GitLab:
		h = newGitLab(r, o.Repository)
	case Gitea:
		h = newGitea(r, o.Repository)
	case Bitbucket:
		h = newBitbucket(r, o.Repository)
	case BitbucketServer:
		h = newBitbucketServer(r, o.Repository)
	case AzureDevOps:
		h = newAzureDevOps(r, o.Repository)
	default:
		return nil, unknown(o.Repository.Kind)
	}
	return &Client{h, o.Repository}, nil
}

var commitID = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// SetStatus says s of its commit, unless that is what was said of it last.
func (c *Client) SetStatus(ctx context.Context, s Status) error {
	t := c.host.terms()
	if !commitID.MatchString(s.Commit) || s.Context == "" || int(s.State) >= len(t.states) || s.State < 0 {
		return failed("the status has no commit, no context or no state that is known").Final()
	}
	s.Context, s.Description = excerpt.Chars(line(s.Context), t.contextMax),
		excerpt.Chars(line(s.Description), t.descriptionMax)
	if s.URL == "" && t.needsURL {
		s.URL = c.repo.commitURL(s.Commit)
	}
	last, err := c.host.latest(ctx, s)
	if err != nil {
		return err
	}
	if last != nil && *last == (said{t.states[s.State], s.Description, s.URL}) {
		return nil
	}
	return c.host.say(ctx, s)
}

// Comment writes a comment, or changes the one of the same key in place.
func (c *Client) Comment(ctx context.Context, m Comment) error {
	h, ok := c.host.(commenter)
	if !ok {
		return failed("comments on change requests of %s are not known", c.repo.Kind).Final()
	}
	if m.Request <= 0 || m.Key == "" {
		return failed("the comment has no change request or no key").Final()
	}
	marker := "<!-- " + digest("comment", m.Key) + " -->"
	body := marker + "\n" + excerpt.Chars(m.Body, c.host.terms().bodyMax-len(marker)-1)
	own, err := first(func(page int) ([]comment, bool, error) { return h.comments(ctx, m.Request, page) },
		func(m comment) bool { return strings.HasPrefix(m.Body, marker) })
	switch {
	case err != nil:
		return err
	case own == nil:
		return h.comment(ctx, m.Request, body)
	case own.Body == body:
		return nil
	}
	return h.recomment(ctx, m.Request, own.ID, body)
}

// Dispatch starts the workflows of a GitHub repository that wait for events of the type; payload must be an
// object of at most ten fields.
func (c *Client) Dispatch(ctx context.Context, eventType string, payload any) error {
	h, ok := c.host.(*github)
	if !ok {
		return failed("only GitHub takes repository_dispatch events").Final()
	}
	return h.dispatch(ctx, eventType, payload)
}

// OpenRequest opens the change request of r's branches and returns its URL for people. If one is open, its
// title, body and labels are made to be r's; labels of others stay.
func (c *Client) OpenRequest(ctx context.Context, r Request) (string, error) {
	t := c.host.terms()
	if r.Head == "" || r.Base == "" || r.Head == r.Base || strings.TrimSpace(r.Title) == "" {
		return "", failed("a change request needs two branches and a title").Final()
	}
	if len(r.Labels) > 0 && !t.labels {
		return "", failed("change requests of %s have no labels", c.repo.Kind).WithHint("Remove the labels").Final()
	}
	r.Title, r.Body = excerpt.Chars(line(r.Title), titleMax), excerpt.Chars(r.Body, t.bodyMax)
	o, err := c.host.find(ctx, r)
	if err != nil {
		return "", err
	}
	if o == nil {
		if o, err = c.host.open(ctx, r); err != nil {
			return "", err
		}
		if o.ID == 0 {
			return "", failed("%s opened no change request", c.repo.Base.Host).
				WithHint("Check the address and the type of the host").Final()
		}
	} else if o.Title != r.Title || !sameText(o.Body, r.Body) {
		if err := c.host.edit(ctx, o, r); err != nil {
			return "", err
		}
	}
	if missing := without(r.Labels, o.Labels); len(missing) > 0 {
		if err := c.host.label(ctx, o, missing); err != nil {
			return "", err
		}
	}
	return o.URL, nil
}

func failed(format string, args ...any) *fault.Fault {
	return fault.New(meta.FailedReason, format, args...)
}
