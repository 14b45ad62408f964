package main

// Selectors of the variables of a dashboard.
const (
	objects = `exported_namespace=~"$namespace",customresource_kind=~"$kind"`
	passes  = `namespace=~"$namespace",kind=~"$kind"`
	gates   = `namespace=~"$namespace"`
)

var dashboards = []dashboard{cluster, controlPlane, gatePage, images}

var cluster = dashboard{
	name: "cluster", title: "Cluster",
	variables: []variable{
		{name: "namespace", metric: "gotk_resource_info", label: "exported_namespace"},
		{name: "kind", metric: "gotk_resource_info", label: "customresource_kind"},
	},
	rows: [][]panel{
		{
			{kind: "stat", title: "Ready", about: "Objects that are as declared",
				queries: []query{{expr: `count(gotk_resource_info{ready="True",` + objects + `}) or vector(0)`}}},
			{kind: "stat", title: "Not Ready", about: "Objects that fail or wait for a retry",
				queries: []query{{expr: `count(gotk_resource_info{ready="False",suspended="false",` + objects +
					`}) or vector(0)`}}},
			{kind: "stat", title: "In progress", about: "Objects whose work continues",
				queries: []query{{expr: `count(gotk_resource_info{ready="Unknown",` + objects + `}) or vector(0)`}}},
			{kind: "stat", title: "Suspended",
				queries: []query{{expr: `sum(gotk_suspend_status{` + passes + `}) or vector(0)`}}},
			{kind: "stat", title: "Waiting at gates",
				queries: []query{{expr: `sum(sluice_gate_waiting{` + gates + `}) or vector(0)`}}},
			{kind: "stat", title: "Kinds",
				queries: []query{{expr: `count by (customresource_kind) (gotk_resource_info{` + objects + `})`,
					legend: "{{customresource_kind}}"}}},
		},
		{{kind: "table", title: "Objects that are not Ready",
			queries: []query{{expr: `gotk_resource_info{ready!="True",` + objects + `}`}}}},
		{
			{kind: "timeseries", title: "Not Ready by kind",
				queries: []query{{expr: `count by (customresource_kind) ` +
					`(gotk_resource_info{ready="False",` + objects + `})`, legend: "{{customresource_kind}}"}}},
			{kind: "timeseries", title: "Reconciliations", unit: "ops",
				queries: []query{{expr: `sum by (kind) ` +
					`(rate(gotk_reconcile_duration_seconds_count{` + passes + `}[5m]))`, legend: "{{kind}}"}}},
			{kind: "timeseries", title: "Duration of 99 of 100 reconciliations", unit: "s",
				queries: []query{{expr: `histogram_quantile(0.99, sum by (kind, le) ` +
					`(rate(gotk_reconcile_duration_seconds_bucket{` + passes + `}[5m])))`, legend: "{{kind}}"}}},
		},
		{{kind: "table", title: "Slowest objects of the last hour",
			queries: []query{{expr: `topk(20, sum by (kind, namespace, name) ` +
				`(increase(gotk_reconcile_duration_seconds_sum{` + passes + `}[1h])))`}}}},
	},
}

var controlPlane = dashboard{
	name: "control-plane", title: "Control plane",
	rows: [][]panel{
		{
			{kind: "timeseries", title: "Memory", unit: "bytes", queries: []query{
				{expr: `process_resident_memory_bytes{job=~".*sluice.*"}`, legend: "{{pod}}"},
				{expr: `sluice_memory_budget_used_bytes`, legend: "used of the budget, {{pod}}"},
				{expr: `sluice_memory_budget_bytes`, legend: "budget, {{pod}}"},
			}},
			{kind: "timeseries", title: "CPU", unit: "s", about: "Seconds of CPU in a second",
				queries: []query{{expr: `rate(process_cpu_seconds_total{job=~".*sluice.*"}[5m])`, legend: "{{pod}}"}}},
			{kind: "timeseries", title: "Work that waits for memory, or waited too long", queries: []query{
				{expr: `sluice_memory_budget_waiting`, legend: "waits, {{pod}}"},
				{expr: `increase(sluice_memory_budget_refused_total[5m])`, legend: "refused in 5 minutes, {{pod}}"},
			}},
		},
		{
			{kind: "timeseries", title: "Queues", about: "Objects that wait for a worker",
				queries: []query{{expr: `sum by (name) (workqueue_depth{job=~".*sluice.*"})`, legend: "{{name}}"}}},
			{kind: "timeseries", title: "Requests to the Kubernetes API", unit: "reqps",
				queries: []query{{expr: `sum by (method, code) ` +
					`(rate(rest_client_requests_total{job=~".*sluice.*"}[5m]))`, legend: "{{method}} {{code}}"}}},
			{kind: "timeseries", title: "Internal errors that were contained", about: "Report each of them",
				queries: []query{{expr: `sum by (work) (increase(sluice_panics_total[1h]))`, legend: "{{work}}"}}},
		},
		{
			{kind: "timeseries", title: "Notifications", unit: "ops",
				queries: []query{{
					expr:   `sum by (provider_namespace, provider, result) (rate(sluice_notifications_total[5m]))`,
					legend: "{{provider_namespace}}/{{provider}} {{result}}",
				}}},
			{kind: "timeseries", title: "Notifications that wait",
				queries: []query{{expr: `sluice_notifications_waiting`,
					legend: "{{provider_namespace}}/{{provider}}"}}},
			{kind: "timeseries", title: "Events", unit: "ops",
				queries: []query{{expr: `sum by (result) (rate(sluice_events_total[5m]))`, legend: "{{result}}"}}},
		},
		{
			{kind: "timeseries", title: "Webhooks", unit: "ops",
				queries: []query{{expr: `sum by (code) (rate(gotk_receiver_http_request_duration_seconds_count[5m]))`,
					legend: "{{code}}"}}},
			{kind: "timeseries", title: "Cache of Helm indexes",
				queries: []query{{expr: `sum by (event_type) (rate(gotk_cache_events_total[5m]))`,
					legend: "{{event_type}}"}}},
			{kind: "timeseries", title: "Cache of credentials of clouds",
				queries: []query{{expr: `sum by (event_type) (rate(gotk_token_cache_events_total[5m]))`,
					legend: "{{event_type}}"}}},
		},
	},
}

var gatePage = dashboard{
	name: "gates", title: "Gates",
	variables: []variable{{name: "namespace", metric: "sluice_gate_opened", label: "namespace"}},
	rows: [][]panel{
		{
			{kind: "stat", title: "Open gates",
				queries: []query{{expr: `sum(sluice_gate_opened{` + gates + `}) or vector(0)`}}},
			{kind: "stat", title: "Closed gates",
				queries: []query{{expr: `count(sluice_gate_opened{` + gates + `} == 0) or vector(0)`}}},
			{kind: "stat", title: "Objects that wait",
				queries: []query{{expr: `sum(sluice_gate_waiting{` + gates + `}) or vector(0)`}}},
		},
		{
			{kind: "timeseries", title: "Open or closed", about: "1 is open",
				queries: []query{{expr: `sluice_gate_opened{` + gates + `}`, legend: "{{namespace}}/{{name}}"}}},
			{kind: "timeseries", title: "Objects that wait, by gate",
				queries: []query{{expr: `sluice_gate_waiting{` + gates + `}`, legend: "{{namespace}}/{{name}}"}}},
		},
		{{kind: "table", title: "Who opened and closed gates in the last day",
			queries: []query{{expr: `sum by (namespace, name, state, reason, by) ` +
				`(increase(sluice_gate_transitions_total{` + gates + `}[1d])) > 0`}}}},
	},
}

var images = dashboard{
	name: "images", title: "Images",
	variables: []variable{{name: "namespace", metric: "sluice_image_tags", label: "exported_namespace"}},
	rows: [][]panel{
		{
			{kind: "timeseries", title: "Tags by repository",
				queries: []query{{expr: `sluice_image_tags{exported_namespace=~"$namespace"}`,
					legend: "{{exported_namespace}}/{{name}}"}}},
			{kind: "timeseries", title: "Scans and updates", unit: "ops",
				queries: []query{{expr: `sum by (kind) (rate(gotk_reconcile_duration_seconds_count{kind=~"Image.*",` +
					`namespace=~"$namespace"}[5m]))`, legend: "{{kind}}"}}},
		},
		{{kind: "table", title: "Image objects that are not Ready",
			queries: []query{{expr: `gotk_resource_info{customresource_kind=~"Image.*",ready!="True",` +
				`exported_namespace=~"$namespace"}`}}}},
	},
}
