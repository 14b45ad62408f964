package reflector

import "github.com/prometheus/client_golang/prometheus"

var tagsMetric = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "sluice_image_tags",
	Help: "Number of tags that the last scan of the ImageRepository found.",
}, []string{"exported_namespace", "name"})

// Metrics returns the metrics of ImageRepositories.
func Metrics() []prometheus.Collector { return []prometheus.Collector{tagsMetric} }
