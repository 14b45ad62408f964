package cluster

import (
	"runtime/debug"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/component-base/compatibility"
	base "k8s.io/component-base/version"
)

// kubernetesVersion is that of the module which this binary was built with. Kubernetes itself learns it from
// flags of its own build only, and says v0.0.0 without them, which charts and clients refuse.
func kubernetesVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "k8s.io/kubernetes" {
				return m.Version
			}
		}
	}
	return "v" + base.DefaultKubeBinaryVersion + ".0"
}

// stated is the version that the API server states.
type stated struct{ compatibility.EffectiveVersion }

func (s stated) Info() *version.Info {
	info := s.EffectiveVersion.Info()
	info.GitVersion, info.GitCommit = kubernetesVersion(), ""
	return info
}
