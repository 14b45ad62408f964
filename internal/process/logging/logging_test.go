package logging

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"go.uber.org/zap/zapcore"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// Each entry is one line in both encodings, also with line breaks in messages and values.
func TestEntriesAreOneLine(t *testing.T) {
	for name, console := range map[string]bool{"console": true, "json": false} {
		var out bytes.Buffer
		logger := newLogger(zap.Options{DestWriter: &out, Level: zapcore.InfoLevel, Development: console,
			TimeEncoder: zapcore.ISO8601TimeEncoder, StacktraceLevel: zapcore.DPanicLevel}).
			WithName("Kustomization").WithValues("controller", "kustomization", "namespace", "apps", "name", "web")
		logger.Info("2 created\nConfigMap a\r\nConfigMap b", "revision", "main@sha1:1", "stack",
			"goroutine 1:\n\tmain.go")
		logger.Error(errors.New("it\nfailed"), "failed", "reason", "Failed")
		logger.V(1).Info("a detail")
		logger.Info("starting server", "addr", ":9090")
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], "2 created; ConfigMap a; ConfigMap b") {
			t.Errorf("%s: got %q, want one line for each of 2 entries", name, lines)
			continue
		}
		fields := lines[0]
		if console {
			fields = lines[0][strings.Index(lines[0], "{"):]
		}
		var entry map[string]any
		if err := json.Unmarshal([]byte(fields), &entry); err != nil {
			t.Errorf("%s: %v in %s", name, err, fields)
		}
		for key, want := range map[string]string{"controller": "kustomization", "namespace": "apps", "name": "web",
			"revision": "main@sha1:1"} {
			if entry[key] != want {
				t.Errorf("%s: %s is %v, want %s", name, key, entry[key], want)
			}
		}
	}
}
