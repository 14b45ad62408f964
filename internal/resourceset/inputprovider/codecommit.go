package inputprovider

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"k8s.io/utils/clock"

	"github.com/sluice-gitops/sluice/internal/githost"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/source/git"
)

const (
	maxAnswer       = 10 << 20 // bytes of an answer of CodeCommit
	maxRequestPages = 1000
)

// codeCommit is a repository of AWS CodeCommit. Its API has no tags, so branches and tags are those that git lists.
type codeCommit struct {
	name, region string
	remote       func(context.Context) (git.Remote, error)
	credentials  func(context.Context) (aws.CredentialsProvider, error)
	transport    http.RoundTripper
	clock        clock.PassiveClock
}

func (p *provider) codeCommit() (repository, error) {
	u, err := url.Parse(p.obj.Spec.URL)
	if err != nil || !strings.HasPrefix(u.Path, "/v1/repos/") || strings.Count(strings.Trim(u.Path, "/"), "/") != 2 {
		return nil, invalidSpec("spec.url is not the URL of a CodeCommit repository").
			WithHint("Use the form https://git-codecommit.REGION.amazonaws.com/v1/repos/NAME")
	}
	region, err := auth.CodeCommitRegion(u)
	if err != nil {
		return nil, err
	}
	transport, err := p.Registries.Egress.Transport(egress.Options{})
	if err != nil {
		return nil, err
	}
	identities := p.Registries.Identities
	account := identities.Account(p.obj.Namespace, p.obj.Spec.ServiceAccountName)
	return &codeCommit{name: path.Base(u.Path), region: region, remote: p.remote, transport: transport, clock: p.Clock,
		credentials: func(ctx context.Context) (aws.CredentialsProvider, error) {
			return identities.AWS(ctx, region, account)
		}}, nil
}

// Branches lists the branches by name.
func (c *codeCommit) Branches(ctx context.Context) iter.Seq2[githost.Ref, error] {
	return c.refs(ctx, func(branches, _ map[string]string) map[string]string { return branches })
}

// Tags lists the tags by name.
func (c *codeCommit) Tags(ctx context.Context) iter.Seq2[githost.Ref, error] {
	return c.refs(ctx, func(_, tags map[string]string) map[string]string { return tags })
}

func (c *codeCommit) refs(ctx context.Context,
	of func(branches, tags map[string]string) map[string]string) iter.Seq2[githost.Ref, error] {
	return func(yield func(githost.Ref, error) bool) {
		remote, err := c.remote(ctx)
		var branches, tags map[string]string
		if err == nil {
			branches, tags, err = git.Commits(ctx, remote)
		}
		if err != nil {
			yield(githost.Ref{}, err)
			return
		}
		refs := of(branches, tags)
		for _, name := range slices.Sorted(maps.Keys(refs)) {
			if !yield(githost.Ref{Name: name, Commit: refs[name]}, nil) {
				return
			}
		}
	}
}

// LabelsOf returns no labels: pull requests of CodeCommit have none.
func (c *codeCommit) LabelsOf(context.Context, githost.ListedRequest) ([]string, error) {
	return nil, nil
}

// Requests lists the open pull requests.
func (c *codeCommit) Requests(ctx context.Context) iter.Seq2[githost.ListedRequest, error] {
	return func(yield func(githost.ListedRequest, error) bool) {
		token := ""
		for range maxRequestPages {
			var page struct {
				IDs  []string `json:"pullRequestIds"`
				Next string   `json:"nextToken"`
			}
			in := map[string]any{"repositoryName": c.name, "pullRequestStatus": "OPEN"}
			if token != "" {
				in["nextToken"] = token
			}
			if err := c.call(ctx, "ListPullRequests", in, &page); err != nil {
				yield(githost.ListedRequest{}, err)
				return
			}
			for _, id := range page.IDs {
				r, err := c.request(ctx, id)
				if !yield(r, err) || err != nil {
					return
				}
			}
			if token = page.Next; token == "" {
				return
			}
		}
		yield(githost.ListedRequest{}, failed("the list of pull requests of CodeCommit does not end"))
	}
}

func (c *codeCommit) request(ctx context.Context, id string) (githost.ListedRequest, error) {
	var out struct {
		Request struct {
			Title   string `json:"title"`
			Author  string `json:"authorArn"`
			Targets []struct {
				Repository string `json:"repositoryName"`
				Source     string `json:"sourceReference"`
				Commit     string `json:"sourceCommit"`
			} `json:"pullRequestTargets"`
		} `json:"pullRequest"`
	}
	if err := c.call(ctx, "GetPullRequest", map[string]any{"pullRequestId": id}, &out); err != nil {
		return githost.ListedRequest{}, err
	}
	number, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return githost.ListedRequest{}, failed("CodeCommit returned a pull request without a number")
	}
	r := githost.ListedRequest{Number: number, Title: out.Request.Title, Author: path.Base(out.Request.Author)}
	for _, t := range out.Request.Targets {
		if t.Repository == c.name {
			r.Branch, r.Commit = strings.TrimPrefix(t.Source, "refs/heads/"), t.Commit
		}
	}
	return r, nil
}

// call sends a signed request to https://docs.aws.amazon.com/codecommit/latest/APIReference.
func (c *codeCommit) call(ctx context.Context, action string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	host := "codecommit." + c.region + ".amazonaws.com"
	if strings.HasPrefix(c.region, "cn-") {
		host += ".cn"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+host+"/", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-amz-json-1.1")
	req.Header.Set("X-Amz-Target", "CodeCommit_20150413."+action)
	provider, err := c.credentials(ctx)
	if err != nil {
		return err
	}
	credentials, err := provider.Retrieve(ctx)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	if err := v4.NewSigner().SignHTTP(ctx, credentials, req, hex.EncodeToString(sum[:]), "codecommit", c.region,
		c.clock.Now()); err != nil {
		return failed("cannot sign a request to CodeCommit").Because(err)
	}
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return failed("request %s to CodeCommit failed", action).Because(err)
	}
	defer func() { _ = resp.Body.Close() }() // read only
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return failed("cannot read the answer of CodeCommit to %s", action).Because(err)
	}
	if resp.StatusCode != http.StatusOK {
		return failed("CodeCommit refused %s: status %d%s", action, resp.StatusCode, awsError(raw)).
			WithHint("Check spec.url, and that the identity may use codecommit:%s", action).
			After(egress.RetryAfter(resp, c.clock.Now()))
	}
	if len(raw) > maxAnswer || json.Unmarshal(raw, out) != nil {
		return failed("unexpected answer of CodeCommit to %s", action)
	}
	return nil
}

// awsError returns the type of the error in an answer, such as ", RepositoryDoesNotExistException".
func awsError(raw []byte) string {
	var e struct {
		Type string `json:"__type"`
	}
	if json.Unmarshal(raw, &e) != nil || e.Type == "" {
		return ""
	}
	name := e.Type[strings.LastIndexByte(e.Type, '#')+1:]
	if len(name) > 100 || notName.MatchString(name) {
		return ""
	}
	return ", " + name
}
