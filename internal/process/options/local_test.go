package options

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestAProcessOutsideOfAClusterListensLocally(t *testing.T) {
	var o Options
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.BindFlags(f)
	if err := f.Parse([]string{"--metrics-addr", ":9999", "--images-addr", "0"}); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(o.ListenLocally(f), ", ")
	want := "artifacts on 127.0.0.1:9090 (--storage-addr), metrics on :9999 (--metrics-addr), " +
		"health on 127.0.0.1:9440 (--health-addr), webhooks on 127.0.0.1:9292 (--receiverAddr), " +
		"events on 127.0.0.1:9293 (--events-addr)"
	if got != want {
		t.Errorf("it serves %s", got)
	}
	free := "--storage-addr 127.0.0.1:0 --metrics-addr 127.0.0.1:0 --health-addr 127.0.0.1:0 " +
		"--receiverAddr 127.0.0.1:0 --events-addr 127.0.0.1:0"
	if got := o.FreePorts(); got != free {
		t.Errorf("a second process needs %s", got)
	}
	if o.StorageAddr != "127.0.0.1:9090" || o.MetricsAddr != ":9999" {
		t.Errorf("it listens on %s and %s", o.StorageAddr, o.MetricsAddr)
	}
}
