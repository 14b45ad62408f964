package helmrelease

import (
	"sync"

	helmaction "helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
)

// served is what templates see of one cluster as .Capabilities. It is read once for each state of discovery, so that a
// release does not pay for all kinds of the cluster.
type served struct {
	mu sync.Mutex
	// groups identifies the state of discovery: its cache returns the same list until it is reset.
	groups       *metav1.APIGroupList
	capabilities *common.Capabilities
}

// read returns what the cluster serves, as far as discovery is not outdated. Callers must not change it.
func (s *served) read(discovery discovery.CachedDiscoveryInterface) (*common.Capabilities, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	groups, err := discovery.ServerGroups()
	if err != nil {
		return nil, err
	}
	if s.capabilities != nil && s.groups == groups {
		return s.capabilities, nil
	}
	version, err := discovery.ServerVersion()
	if err != nil {
		return nil, err
	}
	versions, err := helmaction.GetVersionSet(discovery)
	if err != nil {
		return nil, err
	}
	s.groups, s.capabilities = groups, &common.Capabilities{
		APIVersions: versions, HelmVersion: common.DefaultCapabilities.HelmVersion,
		KubeVersion: common.KubeVersion{Version: version.GitVersion, Major: version.Major, Minor: version.Minor},
	}
	return s.capabilities, nil
}
