{{- define "sluice.allComponents" -}}
["source-controller","kustomize-controller","helm-controller","gating-controller","notification-controller",
"image-reflector-controller","image-automation-controller","resourceset-controller"]
{{- end }}

{{- /* The controllers to run, in the usual order, as JSON list. */}}
{{- define "sluice.components" -}}
{{- $chosen := list }}
{{- range include "sluice.allComponents" . | fromJsonArray }}
{{- if or (empty $.Values.components) (has . $.Values.components) }}
{{- $chosen = append $chosen . }}
{{- end }}
{{- end }}
{{- toJson $chosen }}
{{- end }}

{{- /* The complete reference of the image. */}}
{{- define "sluice.image" -}}
{{- .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- with .Values.image.digest }}@{{ . }}{{ end }}
{{- end }}

{{- /* Arguments that depend on values. */}}
{{- define "sluice.args" -}}
{{- if and .Values.hub.tlsSecret (not .Values.hub.url) }}
{{- fail "hub.tlsSecret needs hub.url, the URL by which clusters reach the hub" }}
{{- end }}
{{- $chosen := include "sluice.components" . | fromJsonArray }}
{{- $backend := .Values.storageBackend }}
{{- if $backend.endpoint }}
{{- $bucket := required "storageBackend.bucket is needed with storageBackend.endpoint" $backend.bucket }}
{{- if has "source-controller" $chosen }}
- {{ printf "--storage-backend-s3-endpoint=%s" $backend.endpoint | quote }}
- {{ printf "--storage-backend-s3-bucket=%s" $bucket | quote }}
{{- with $backend.prefix }}
- {{ printf "--storage-backend-s3-prefix=%s" . | quote }}
{{- end }}
{{- with $backend.region }}
- {{ printf "--storage-backend-s3-region=%s" . | quote }}
{{- end }}
{{- end }}
{{- if .Values.autoShards }}
- --auto-shards
{{- end }}
{{- else if .Values.autoShards }}
{{- fail "autoShards needs storageBackend.endpoint: replicas get the artifacts of each other from a bucket" }}
{{- else if or $backend.bucket $backend.prefix $backend.region $backend.secret }}
{{- fail "other values of storageBackend need storageBackend.endpoint" }}
{{- end }}
{{- if ne (len $chosen) (include "sluice.allComponents" . | fromJsonArray | len) }}
- --controllers={{ join "," $chosen }}
{{- end }}
{{- if ne .Values.logLevel "info" }}
- --log-level={{ .Values.logLevel }}
{{- end }}
{{- if not .Values.watchAllNamespaces }}
- --watch-all-namespaces=false
{{- end }}
{{- range .Values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{- /* The number of replicas, as sluice install sets it. */}}
{{- define "sluice.replicas" -}}
{{- if and (gt (int .Values.replicas) 1) (not .Values.storageBackend.endpoint) }}
{{- fail "replicas needs storageBackend.endpoint: replicas serve the same artifacts from a bucket" }}
{{- end }}
{{- if .Values.replicas }}{{ .Values.replicas }}{{ else if .Values.storageBackend.endpoint }}3{{ else }}1{{ end }}
{{- end }}

{{- /* The most replicas of the autoscaler. */}}
{{- define "sluice.maxReplicas" -}}
{{- if not .Values.autoShards }}
{{- fail "maxReplicas needs autoShards: more standbys do no more work" }}
{{- end }}
{{- if le (int .Values.maxReplicas) (include "sluice.replicas" . | int) }}
{{- fail "maxReplicas must be more than replicas" }}
{{- end }}
{{- .Values.maxReplicas }}
{{- end }}

{{- /* Arguments of logins to the web UI and to the hub, as sluice install sets them. */}}
{{- define "sluice.loginArgs" -}}
{{- $oidc := .Values.ui.oidc }}
{{- if $oidc.issuer }}
- {{ printf "--ui-oidc-issuer=%s" $oidc.issuer | quote }}
- {{ printf "--ui-oidc-client-id=%s" (required "ui.oidc.clientID is needed with ui.oidc.issuer" $oidc.clientID) | quote }}
{{- if $oidc.clientSecret }}
- --ui-oidc-client-secret-file=/etc/sluice-ui/client-secret
{{- end }}
{{- range $flag, $value := dict "1username-claim" $oidc.usernameClaim "2username-prefix" $oidc.usernamePrefix "3groups-claim" $oidc.groupsClaim "4groups-prefix" $oidc.groupsPrefix }}
{{- if $value }}
- {{ printf "--ui-oidc-%s=%s" (substr 1 -1 $flag) $value | quote }}
{{- end }}
{{- end }}
{{- else if or $oidc.clientID $oidc.clientSecret $oidc.usernameClaim $oidc.usernamePrefix $oidc.groupsClaim $oidc.groupsPrefix (not .Values.ui.tokenLogin) }}
{{- fail "other values of ui.oidc, and ui.tokenLogin=false, need ui.oidc.issuer" }}
{{- end }}
{{- if not .Values.ui.tokenLogin }}
- --ui-token-login=false
{{- end }}
{{- end }}

{{- /* Arguments of the web UI, as sluice install sets them. */}}
{{- define "sluice.uiArgs" -}}
{{- $oidc := .Values.ui.oidc }}
{{- if .Values.ui.url }}
- --ui-addr=:9095
- {{ printf "--ui-external-url=%s" .Values.ui.url | quote }}
{{- include "sluice.loginArgs" . }}
{{- if .Values.ui.mcpURL }}
- --mcp-addr=:9096
- {{ printf "--mcp-external-url=%s" .Values.ui.mcpURL | quote }}
{{- end }}
{{- if .Values.ui.reviewSecret }}
- --review-addr=:9097
- --review-config=/etc/sluice-review/review.yaml
{{- end }}
{{- else if or .Values.ui.mcpURL .Values.ui.reviewSecret }}
{{- fail "ui.mcpURL and ui.reviewSecret need ui.url, the URL by which browsers reach the web UI" }}
{{- else if and (or $oidc.issuer $oidc.clientID $oidc.clientSecret) (not .Values.hub.url) }}
{{- fail "ui.oidc needs ui.url or hub.url, the URL by which browsers reach the pages" }}
{{- end }}
{{- end }}

{{- /* Arguments of the hub, as sluice install sets them. */}}
{{- define "sluice.hubArgs" -}}
{{- $backend := .Values.storageBackend }}
- {{ printf "--external-url=%s" .Values.hub.url | quote }}
{{- if $backend.endpoint }}
- {{ printf "--storage-backend-s3-endpoint=%s" $backend.endpoint | quote }}
- {{ printf "--storage-backend-s3-bucket=%s" $backend.bucket | quote }}
{{- with $backend.prefix }}
- {{ printf "--storage-backend-s3-prefix=%s" . | quote }}
{{- end }}
{{- with $backend.region }}
- {{ printf "--storage-backend-s3-region=%s" . | quote }}
{{- end }}
{{- end }}
{{- if ne .Values.logLevel "info" }}
- --log-level={{ .Values.logLevel }}
{{- end }}
{{- include "sluice.loginArgs" . }}
{{- if .Values.hub.tlsSecret }}
- --tls-cert-file=/etc/sluice-hub/tls.crt
- --tls-key-file=/etc/sluice-hub/tls.key
{{- end }}
{{- end }}
