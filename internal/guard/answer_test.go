package guard

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func answerTo(ctx context.Context, query, body string) *http.Response {
	req := (&http.Request{URL: &url.URL{Host: "cluster", RawQuery: query}}).WithContext(ctx)
	resp := &http.Response{Body: io.NopCloser(strings.NewReader(body))}
	LimitAnswer(req, resp)
	return resp
}

func TestAnswersOfClustersAreBounded(t *testing.T) {
	b := NewBudget(80 << 20) // 10 MiB for an answer
	ctx := WithBudget(context.Background(), b)
	long, dense := strings.Repeat("x", 2<<20), strings.Repeat("{},", 1<<16)
	for name, c := range map[string]struct {
		query, body string
		cut         bool
	}{
		"usual":      {body: long},
		"too long":   {body: long + long, cut: true},
		"too dense":  {body: dense, cut: true},
		"of a watch": {query: "watch=true", body: long + long},
	} {
		resp := answerTo(ctx, c.query, c.body)
		read, err := io.ReadAll(resp.Body)
		if IsAnswerTooLarge(err) != c.cut || !c.cut && (err != nil || len(read) != len(c.body)) {
			t.Errorf("%s: %d of %d bytes, %v", name, len(read), len(c.body), err)
		}
		if err != nil && !strings.Contains(err.Error(), "the answer of 'cluster' needs too much memory") {
			t.Errorf("%s: %v", name, err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestAnswersWithoutAnOwnerLeaveMemoryForOthers has a cluster that sends lists for several watches, each of which takes
// as much memory as one may.
func TestAnswersWithoutAnOwnerLeaveMemoryForOthers(t *testing.T) {
	b := NewBudget(80 << 20) // 10 MiB for an answer
	ctx := WithBudget(t.Context(), b)
	b.wait = 0
	for range 10 {
		resp := answerTo(ctx, "", strings.Repeat("x", 3<<20))
		_, _ = io.ReadAll(resp.Body) // its memory is given back later
	}
	lease, err := b.Acquire(WithOwner(t.Context(), "tenant"), "a build", 10<<20)
	if err != nil {
		t.Errorf("with %s in use: %v", Bytes(b.Used()), err)
	}
	lease.Release()
}

func TestPagesOfAListAreCountedTogether(t *testing.T) {
	b := NewBudget(80 << 20)
	ctx := WithAnswers(WithBudget(context.Background(), b), NewAnswers(b))
	page := strings.Repeat("x", 1<<20)
	pages := 0
	for ; pages < 10; pages++ {
		resp := answerTo(ctx, "continue=x", page)
		_, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if IsAnswerTooLarge(err) {
			break
		}
	}
	if pages != 3 {
		t.Errorf("%d pages were read", pages)
	}
}

func TestALargeAnswerHoldsMemoryUntilItIsDecoded(t *testing.T) {
	b := NewBudget(80 << 20)
	resp := answerTo(WithBudget(context.Background(), b), "", strings.Repeat("x", 2<<20))
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if b.Used() < 2<<20 {
		t.Errorf("%d bytes are used", b.Used())
	}
}
