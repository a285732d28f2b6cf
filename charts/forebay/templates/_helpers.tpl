{{/* The name that all objects of the chart begin with. */}}
{{- define "forebay.fullname" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-{{ .Chart.Name }}{{ end }}
{{- end }}

{{- define "forebay.operator" -}}
{{ include "forebay.fullname" . | trunc 50 | trimSuffix "-" }}-operator
{{- end }}

{{- define "forebay.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "forebay.operator" .) }}
{{- end }}

{{- define "forebay.image" -}}
{{ .image.repository }}:{{ .image.tag | default .appVersion }}
{{- end }}

{{/* Labels that select the operator's pods: never anything that changes with a version. */}}
{{- define "forebay.selector" -}}
app.kubernetes.io/name: forebay-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "forebay.labels" -}}
{{ include "forebay.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: operator
app.kubernetes.io/part-of: forebay
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* Apart from the operator's: its Service and its PodDisruptionBudget must not select these. */}}
{{- define "forebay.nodeSettings.selector" -}}
app.kubernetes.io/name: forebay-node-settings
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "forebay.nodeSettings.labels" -}}
{{ include "forebay.nodeSettings.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: node-settings
app.kubernetes.io/part-of: forebay
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
