package inputprovider

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sluice-gitops/sluice/internal/githost"
)

// awsStub answers the actions of CodeCommit in the form of its API reference.
type awsStub struct {
	t       *testing.T
	status  int
	answers map[string]string // by action
}

func (s awsStub) RoundTrip(req *http.Request) (*http.Response, error) {
	s.t.Helper()
	action := strings.TrimPrefix(req.Header.Get("X-Amz-Target"), "CodeCommit_20150413.")
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	if req.URL.String() != "https://codecommit.eu-west-1.amazonaws.com/" ||
		!strings.Contains(req.Header.Get("Authorization"), "/20261129/eu-west-1/codecommit/aws4_request") {
		s.t.Errorf("request to %s with %q", req.URL, req.Header)
	}
	if strings.Contains(string(body), `"nextToken":"more"`) {
		action += " more"
	}
	return &http.Response{StatusCode: s.status, Header: http.Header{},
		Body: io.NopCloser(strings.NewReader(s.answers[action]))}, nil
}

func (s awsStub) repository() *codeCommit {
	return &codeCommit{name: "app", region: "eu-west-1", transport: s,
		clock: clocktesting.NewFakePassiveClock(time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)),
		credentials: func(context.Context) (aws.CredentialsProvider, error) {
			return credentials.NewStaticCredentialsProvider("id", "s3cret", ""), nil
		}}
}

func requestsOf(t *testing.T, c *codeCommit) (all []githost.ListedRequest, err error) {
	t.Helper()
	for r, err := range c.Requests(t.Context()) {
		if err != nil {
			return all, err
		}
		all = append(all, r)
	}
	return all, nil
}

func TestRequestsOfCodeCommit(t *testing.T) {
	stub := awsStub{t: t, status: http.StatusOK, answers: map[string]string{
		"ListPullRequests":      `{"pullRequestIds":["7"],"nextToken":"more"}`,
		"ListPullRequests more": `{"pullRequestIds":["7"]}`,
		"GetPullRequest": `{"pullRequest":{"pullRequestId":"7","title":"Add","authorArn":"arn:aws:iam::1:user/mona",
			"pullRequestTargets":[{"repositoryName":"other","sourceReference":"refs/heads/x","sourceCommit":"2"},
				{"repositoryName":"app","sourceReference":"refs/heads/feat/a","sourceCommit":"1"}]}}`,
	}}
	all, err := requestsOf(t, stub.repository())
	want := githost.ListedRequest{Number: 7, Title: "Add", Author: "mona", Branch: "feat/a", Commit: "1"}
	if err != nil || len(all) != 2 {
		t.Fatalf("got %+v, %v", all, err)
	}
	for _, r := range all {
		if r.Number != want.Number || r.Title != want.Title || r.Author != want.Author || r.Branch != want.Branch ||
			r.Commit != want.Commit {
			t.Errorf("got %+v, want %+v", r, want)
		}
	}

	t.Log("an error has its type, and nothing else of the answer")
	stub.status = http.StatusBadRequest
	stub.answers = map[string]string{"ListPullRequests": `{"__type":"RepositoryDoesNotExistException","message":"x"}`}
	_, err = requestsOf(t, stub.repository())
	if err == nil || !strings.Contains(err.Error(), "status 400, RepositoryDoesNotExistException. "+
		"Check spec.url, and that the identity may use codecommit:ListPullRequests") {
		t.Errorf("got %v", err)
	}
}
