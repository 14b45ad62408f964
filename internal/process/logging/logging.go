// Package logging configures the loggers of the process and of client-go.
package logging

import (
	"fmt"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	uberzap "go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// now is what the loggers are set to. Tests start many managers in a process, and klog.SetLogger must not be called
// while something logs.
var now struct {
	sync.Mutex
	level, encoding string
}

// Set sets the loggers by the flags --log-level and --log-encoding.
func Set(level, encoding string) error {
	now.Lock()
	defer now.Unlock()
	if level == now.level && encoding == now.encoding {
		return nil
	}
	levels := map[string]zapcore.Level{"trace": -2, "debug": zapcore.DebugLevel, "info": zapcore.InfoLevel,
		"error": zapcore.ErrorLevel}
	l, ok := levels[level]
	if !ok {
		return fmt.Errorf("--log-level is %q: choose trace, debug, info or error", level)
	}
	if encoding != "json" && encoding != "console" {
		return fmt.Errorf("--log-encoding is %q: choose json or console", encoding)
	}
	options := zap.Options{Level: l, TimeEncoder: zapcore.ISO8601TimeEncoder, StacktraceLevel: zapcore.DPanicLevel,
		Development: encoding == "console"}
	log.SetLogger(newLogger(options))
	klog.SetLogger(log.Log.WithName("client"))
	now.level, now.encoding = level, encoding
	return nil
}

// newLogger returns a logger that writes one line for each entry.
func newLogger(options zap.Options) logr.Logger {
	options.ZapOpts = append(options.ZapOpts, uberzap.WrapCore(func(c zapcore.Core) zapcore.Core {
		return oneLine{c}
	}))
	return zap.New(zap.UseFlagOptions(&options))
}

// oneLine is a core that replaces line breaks in messages, which the console encoding keeps. The encodings escape those
// in values.
type oneLine struct{ zapcore.Core }

// With implements [zapcore.Core].
func (c oneLine) With(fields []zapcore.Field) zapcore.Core { return oneLine{c.Core.With(fields)} }

// isDetail has the messages that controller-runtime logs at INFO for each of its servers.
var isDetail = map[string]bool{"starting server": true, "shutting down server": true}

// Check implements [zapcore.Core].
func (c oneLine) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if e.Level == zapcore.InfoLevel && isDetail[e.Message] {
		e.Level = zapcore.DebugLevel
	}
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

// Write implements [zapcore.Core].
func (c oneLine) Write(e zapcore.Entry, fields []zapcore.Field) error {
	e.Message = strings.Join(strings.FieldsFunc(e.Message, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
	e.LoggerName = strings.ReplaceAll(e.LoggerName, "\n", " ")
	return c.Core.Write(e, fields)
}
