package source_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// More sources of a host that hangs than there are workers do not block the source of another host.
func TestHangingHostDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	s := newHarness(t, func(o *options.Options) {
		o.EgressTimeouts.Connect, o.EgressTimeouts.Answer = time.Hour, time.Hour
	})
	hanging, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	reached := make(chan net.Conn, 100)
	go func() {
		defer close(reached)
		for c, err := hanging.Accept(); err == nil; c, err = hanging.Accept() {
			reached <- c
		}
	}()
	t.Cleanup(func() {
		_ = hanging.Close()
		for c := range reached {
			_ = c.Close()
		}
	})
	const broken = 12
	for n := range broken {
		s.GitRepository(fmt.Sprintf("broken-%d", n), func(g *sourcev1.GitRepository) {
			g.Spec.URL, g.Spec.Timeout = "http://"+hanging.Addr().String()+fmt.Sprintf("/%d", n),
				&meta.Duration{Duration: 59 * time.Minute}
		})
	}
	most := s.Options().Concurrent * 3 / 4
	testenv.Eventually(t, "the maximum of requests is in flight", func() error {
		if n := len(reached); n != most {
			return fmt.Errorf("%d requests are in flight", n)
		}
		return nil
	})
	commit := s.Git.Commit("good", map[string]string{"a": "b"})
	s.GitRepository("good")
	s.GitRepositoryReady("good", commit)
	testenv.Eventually(t, "sources without a request in flight report it", func() error {
		all, failed := &sourcev1.GitRepositoryList{}, 0
		if err := s.Client.List(t.Context(), all, client.InNamespace(s.Namespace)); err != nil {
			return err
		}
		for _, g := range all.Items {
			c := apimeta.FindStatusCondition(g.Status.Conditions, sourcev1.FetchFailedCondition)
			if c != nil && c.Status == metav1.ConditionTrue && c.Reason == "GitOperationFailed" &&
				strings.Contains(c.Message, hanging.Addr().String()) {
				failed++
			}
		}
		if failed != broken-most {
			return fmt.Errorf("%d sources report it", failed)
		}
		return nil
	})
	if n := len(reached); n != most {
		t.Errorf("%d requests were in flight, the maximum is %d", n, most)
	}
}
