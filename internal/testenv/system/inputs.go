package system

import (
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func (s *System) Patch(o client.Object, name, patch string) {
	s.Helper()
	o.SetNamespace(s.Namespace)
	o.SetName(name)
	if err := s.Client.Patch(s.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		s.Fatal(err)
	}
}
