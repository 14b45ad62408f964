{{- define "sluice.allComponents" -}}
["source-controller","kustomize-controller","helm-controller","gating-controller","notification-controller",
"image-reflector-controller","image-automation-controller"]
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
{{- $chosen := include "sluice.components" . | fromJsonArray }}
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
