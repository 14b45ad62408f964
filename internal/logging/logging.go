// Package logging configures the loggers of the process and of client-go.
package logging

import (
	"fmt"

	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// Set sets the loggers by the flags --log-level and --log-encoding.
func Set(level, encoding string) error {
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
	log.SetLogger(zap.New(zap.UseFlagOptions(&options)))
	klog.SetLogger(log.Log.WithName("client"))
	return nil
}
