package manager

import (
	"fmt"
	"net"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// There are more sources of a host that hangs than workers; the one of another host is fetched meanwhile.
func TestAHostThatHangsDelaysNoOtherHost(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	hanging, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hanging.Close() })
	reached := make(chan net.Conn, 100)
	go func() {
		for {
			c, err := hanging.Accept()
			if err != nil {
				close(reached)
				return
			}
			reached <- c
		}
	}()
	const broken = 12
	for n := range broken {
		s.source(fmt.Sprintf("broken-%d", n), func(g *sourcev1.GitRepository) {
			g.Spec.URL = "http://" + hanging.Addr().String() + fmt.Sprintf("/%d", n)
		})
	}
	var held []net.Conn
	for range broken {
		select {
		case c := <-reached:
			held = append(held, c)
		case <-time.After(time.Second): // the limit was reached
		}
	}
	options := s.options()
	if len(held) == 0 || len(held) > options.requestsPerHost() {
		t.Fatalf("%d requests are in flight", len(held))
	}
	s.git.Init("good")
	s.git.Commit("good", map[string]string{"a": "b"})
	began := time.Now()
	s.source("good")
	good := &sourcev1.GitRepository{}
	testenv.Eventually(t, "the other host's source is ready", func() error {
		if err := s.get(good, "good"); err != nil {
			return err
		}
		if !reconcile.IsReady(good) {
			return fmt.Errorf("%v", good.Status.Conditions)
		}
		return nil
	})
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %s, as long as the requests that hang", took)
	}
	s.fails(&sourcev1.GitRepository{}, fmt.Sprintf("broken-%d", broken-1), "GitOperationFailed", hanging.Addr().String())
	last := &sourcev1.GitRepository{}
	if err := s.get(last, fmt.Sprintf("broken-%d", broken-1)); err != nil || !apimeta.IsStatusConditionTrue(last.Status.Conditions, sourcev1.FetchFailedCondition) {
		t.Errorf("%v, %v", err, last.Status.Conditions)
	}
	for _, c := range held {
		_ = c.Close()
	}
}
