package cli

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/yaml"
)

const devVersion = "dev"

// Version is set by the release build; a build from source carries its commit.
var Version = devVersion

func (a *app) version() *cobra.Command {
	var clientOnly bool
	var output string
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this binary and of the cluster",
		Example: `  sluice version --client
  sluice version -o json`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			info := map[string]string{"sluice": Version + commit(), "go": runtime.Version()}
			if !clientOnly {
				cfg, err := a.config()
				if err != nil {
					return err
				}
				d, err := discovery.NewDiscoveryClientForConfig(cfg)
				if err != nil {
					return err
				}
				v, err := d.ServerVersion()
				if err != nil {
					return explain("cannot ask the cluster for its version; --client leaves it out", err)
				}
				info["kubernetes"] = v.GitVersion
			}
			return a.printVersion(info, output)
		},
	}
	c.Flags().BoolVar(&clientOnly, "client", false, "this binary alone")
	c.Flags().StringVarP(&output, "output", "o", "", "json or yaml")
	return c
}

func (a *app) printVersion(info map[string]string, output string) error {
	var b []byte
	var err error
	switch output {
	case "":
		for _, k := range []string{"sluice", "kubernetes", "go"} {
			if info[k] != "" {
				b = fmt.Appendf(b, "%s: %s\n", k, info[k])
			}
		}
	case "json":
		b, err = json.MarshalIndent(info, "", "  ")
		b = append(b, '\n')
	case "yaml":
		b, err = yaml.Marshal(info)
	default:
		return usagef("unknown output %q: choose json or yaml", output)
	}
	if err != nil {
		return err
	}
	_, err = a.out.Write(b)
	return err
}

// commit returns +<hash> of a build from a checkout.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return "+" + s.Value[:min(12, len(s.Value))]
		}
	}
	return ""
}
