package ui

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// logOf returns the events of a stream of logs until one of a name, or until it ends.
func (s *site) logOf(query, until string, edit ...func(*http.Request)) (events []string, lines []logLine) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 5*time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.server.URL+"/api/v1/logs/stream?namespace="+
		s.namespace+query, nil)
	if err != nil {
		s.Fatal(err)
	}
	r.AddCookie(&http.Cookie{Name: localCookie, Value: s.login.token})
	for _, f := range edit {
		f(r)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewScanner(resp.Body)
	in.Buffer(nil, 4<<20)
	event := ""
	for in.Scan() {
		if name, ok := strings.CutPrefix(in.Text(), "event: "); ok {
			event = name
		}
		data, ok := strings.CutPrefix(in.Text(), "data: ")
		if !ok {
			continue
		}
		events = append(events, event+" "+data)
		if event == "lines" {
			var part []logLine
			if err := json.Unmarshal([]byte(data), &part); err != nil {
				s.Fatal(err)
			}
			lines = append(lines, part...)
		}
		if event == until {
			return events, lines
		}
	}
	return events, lines
}

// workload creates a Deployment with pods that have a log.
func (s *site) workload(name string, logs ...string) {
	s.Helper()
	labels := map[string]string{"app": name}
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "web:1"}, {Name: "proxy",
		Image: "proxy:1"}}}
	replicas := int32(0)
	s.create(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec}}})
	testenv.AwaitAccount(s, s.namespace)
	for i, text := range logs {
		s.create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, i), Labels: labels,
			Annotations: map[string]string{"playground.sluice.dev/log": text,
				"playground.sluice.dev/previous-log": "crashed\n"}}, Spec: spec})
	}
	testenv.Eventually(s, "the pods run", func() error {
		for i := range logs {
			status, body := s.request(http.MethodGet, fmt.Sprintf("/api/v1/logs?namespace=%s&pod=%s-%d&container=main",
				s.namespace, name, i), "")
			if status != http.StatusOK {
				return fmt.Errorf("%d %s", status, body)
			}
		}
		return nil
	})
}

func textsOf(lines []logLine) []string {
	var texts []string
	for _, l := range lines {
		texts = append(texts, l.Pod+"/"+l.Container+": "+l.Text)
	}
	slices.Sort(texts)
	return texts
}

func TestLogsOfAllPodsAreOneStream(t *testing.T) {
	s := newSite(t, everyone)
	s.workload("web", "one\ntwo\n", "three\n")
	events, lines := s.logOf("&kind=Deployment&name=web", "end")
	want := []string{"web-0/main: one", "web-0/main: two", "web-0/proxy: one", "web-0/proxy: two",
		"web-1/main: three", "web-1/proxy: three"}
	if got := textsOf(lines); !slices.Equal(got, want) {
		t.Errorf("the lines are %q", got)
	}
	for _, l := range lines {
		if l.At.IsZero() {
			t.Errorf("line %q has no time", l.Text)
		}
	}
	if !strings.HasPrefix(events[0], "pods ") || !strings.HasPrefix(events[len(events)-1], "end ") {
		t.Errorf("the events are %q", events)
	}
	_, lines = s.logOf("&kind=Pod&name=web-0&container=main&lines=1", "end")
	if got := textsOf(lines); !slices.Equal(got, []string{"web-0/main: two"}) {
		t.Errorf("the last line is %q", got)
	}
	_, lines = s.logOf("&kind=Deployment&name=web&container=main&previous=true", "end")
	if got := textsOf(lines); !slices.Equal(got, []string{"web-0/main: crashed", "web-1/main: crashed"}) {
		t.Errorf("the previous containers say %q", got)
	}
}

func TestFollowedLogsSurviveALostConnection(t *testing.T) {
	s := newSite(t, everyone)
	s.workload("web", "one\n")
	follow := "&kind=Deployment&name=web&container=main&follow=true"
	if _, lines := s.logOf(follow, "lines"); len(lines) != 1 {
		t.Errorf("the lines are %v", textsOf(lines))
	}
	testenv.Eventually(t, "the log without a reader is closed", func() error {
		if !s.ui.logStreams.Open("admin", 1, 1) {
			return fmt.Errorf("it is open")
		}
		s.ui.logStreams.Close("admin")
		return nil
	})
	since := time.Now()
	again := func(r *http.Request) { r.Header.Set("Last-Event-ID", since.Format(time.RFC3339Nano)) }
	if events, _ := s.logOf(follow, "pods", again); len(events) == 0 {
		t.Error("no event after a reconnect")
	}
}

func TestLogsAreBounded(t *testing.T) {
	s := newSite(t, everyone)
	s.workload("long", strings.Repeat("x", 3*maxLogLine)+"\nshort\n")
	_, lines := s.logOf("&kind=Deployment&name=long&container=main", "end")
	if len(lines) != 2 || len(lines[0].Text) > maxLogLine+3 || !strings.HasSuffix(lines[0].Text, "…") ||
		lines[1].Text != "short" {
		t.Errorf("%d lines, the first has %d bytes", len(lines), len(lines[0].Text))
	}
	at := "/api/v1/logs/stream?namespace=" + s.namespace
	for query, want := range map[string]int{
		"&kind=Deployment&name=gone":                              http.StatusNotFound,
		"&kind=Secret&name=x":                                     http.StatusBadRequest,
		"&kind=Pod&name=x&lines=0":                                http.StatusBadRequest,
		"&kind=Pod&name=x&follow=true&previous=true":              http.StatusBadRequest,
		"&kind=Pod&name=" + strings.Repeat("x", maxQuery):         http.StatusRequestURITooLong,
		"&kind=Pod&name=long-0&container=main&lines=" + "1000000": http.StatusBadRequest,
	} {
		if status, body := s.request(http.MethodGet, at+query, ""); status != want {
			t.Errorf("%.60s: %d %s, want %d", query, status, body, want)
		}
	}
	testenv.Eventually(t, "the log that was read is closed", func() error {
		if !s.ui.logStreams.Open("admin", 1, 1) {
			return errors.New("it is open")
		}
		return nil
	})
	for range maxUserLogStreams - 1 {
		s.ui.logStreams.Open("admin", maxLogStreams, maxUserLogStreams)
	}
	if status, _ := s.request(http.MethodGet, at+"&kind=Pod&name=long-0", ""); status != http.StatusTooManyRequests {
		t.Errorf("one more log than is allowed got %d", status)
	}
}

func TestLogsNeedTheRightsOfTheUser(t *testing.T) {
	s := newSiteAs(t, everyone, "without-rights")
	for _, kind := range []string{"Pod", "Deployment", "Kustomization"} {
		status, body := s.request(http.MethodGet, "/api/v1/logs/stream?namespace="+s.namespace+"&name=a&kind="+kind, "")
		if status != http.StatusForbidden || !strings.Contains(body, "Ask an administrator") {
			t.Errorf("%s: %d %s", kind, status, body)
		}
	}
	no := func(r *http.Request) { r.Header.Del("Cookie") }
	if status, _ := s.request(http.MethodGet, "/api/v1/logs/stream?kind=Pod", "", no); status !=
		http.StatusUnauthorized {
		t.Errorf("without a login: %d", status)
	}
}
