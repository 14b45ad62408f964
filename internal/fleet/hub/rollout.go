package hub

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-gitops/sluice/internal/fleet"
)

// Rollout answers how far the revisions of a source have come.
func (h *Hub) Rollout(q fleet.Question) fleet.Rollout {
	h.mu.Lock()
	defer h.mu.Unlock()
	clusters := make([]fleet.Cluster, 0, len(h.shown))
	for name := range h.shown {
		clusters = append(clusters, *h.describe(name))
	}
	slices.SortFunc(clusters, func(a, b fleet.Cluster) int { return strings.Compare(a.Name, b.Name) })
	return q.Answer(clusters, h.Now().UTC())
}

// rollout serves the question of a gate. A cluster that asks does not count.
func (s *Server) rollout(w http.ResponseWriter, r *http.Request) error {
	reader, err := s.mayRead(r, "")
	if err != nil {
		return err
	}
	wanted, err := labels.ConvertSelectorToLabelsMap(r.FormValue("labels"))
	if err != nil {
		return refuse(http.StatusBadRequest, "Write labels such as region=eu,stage=production",
			"the parameter labels has no labels")
	}
	q := fleet.Question{Labels: wanted, Source: r.FormValue("source"), At: r.FormValue("at")}
	if q.Share, err = strconv.Atoi(r.FormValue("share")); err != nil || q.Share < 1 || q.Share > 100 ||
		strings.Count(q.Source, "/") != 2 {
		return refuse(http.StatusBadRequest, "Ask as /fleet/v1/rollout?source=KIND/NAMESPACE/NAME&share=80",
			"the parameter share is not a percentage, or source is not the name of a source")
	}
	if reader != nil {
		q.Except = reader.name
	}
	return answer(w, r, s.Hub.Rollout(q))
}
