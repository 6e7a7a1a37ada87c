{{/* Names and labels that several templates use. */}}

{{- define "sandbar.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "sandbar.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "sandbar.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "sandbar.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "sandbar.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/name: {{ include "sandbar.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* The labels by which the Service, the budget and the Deployment find the pods of the control plane. */}}
{{- define "sandbar.selector" -}}
app.kubernetes.io/name: {{ include "sandbar.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: control-plane
{{- end -}}

{{- define "sandbar.secretName" -}}
{{- default (include "sandbar.fullname" .) .Values.secret.existingSecret -}}
{{- end -}}

{{/* The variables that the chart sets, with the key of the Secret that has their value. */}}
{{- define "sandbar.secretFiles" -}}
{{- merge (dict "SANDBAR_SECRET" "secret" "SANDBAR_DATABASE_URL" "database-url") .Values.secret.more | toYaml -}}
{{- end -}}
