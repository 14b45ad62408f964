package reflector

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var tagsMetric = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "sluice_image_tags",
	Help: "Number of tags that the last scan of the ImageRepository found.",
}, []string{"exported_namespace", "name"})

func init() { metrics.Registry.MustRegister(tagsMetric) }
