package options

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// listeners are what a process serves, by the flag of its address.
func (o *Options) listeners() []listener {
	return []listener{
		{"artifacts", "storage-addr", &o.StorageAddr}, {"metrics", "metrics-addr", &o.MetricsAddr},
		{"health", "health-addr", &o.HealthAddr}, {"webhooks", "receiverAddr", &o.ReceiverAddr},
		{"image tags", "images-addr", &o.ImagesAddr}, {"events", "events-addr", &o.EventsAddr},
	}
}

type listener struct {
	what, flag string
	addr       *string
}

// FreePorts returns the flags by which a process takes free ports of this machine, such as beside another process.
func (o *Options) FreePorts() string {
	var flags []string
	for _, l := range o.listeners() {
		if !IsDisabled(*l.addr) {
			flags = append(flags, "--"+l.flag+" 127.0.0.1:0")
		}
	}
	return strings.Join(flags, " ")
}

// ListenLocally makes addresses that were not set, of a process outside of a cluster, those of this machine only: its
// ports would else be open to the network around a laptop. It returns what is served at which address, by which flag.
func (o *Options) ListenLocally(f *pflag.FlagSet) []string {
	var served []string
	for _, a := range o.listeners() {
		if !f.Changed(a.flag) && strings.HasPrefix(*a.addr, ":") {
			*a.addr = "127.0.0.1" + *a.addr
		}
		if !IsDisabled(*a.addr) {
			served = append(served, fmt.Sprintf("%s on %s (--%s)", a.what, *a.addr, a.flag))
		}
	}
	return served
}
