{{/* Names and selector equal those of the predecessor's chart 1.1.0: `helm upgrade` of its release then replaces its Deployment,
whose selector cannot be changed. So the default name is that of the predecessor's chart, not of this one. */}}
{{- define "agent-forge.name" -}}
{{- default "agent-forge-operator" .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "agent-forge.fullname" -}}
{{- $name := include "agent-forge.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* The selector of the Deployment. Two labels, as in 1.1.0, and no more. */}}
{{- define "agent-forge.selectorLabels" -}}
app.kubernetes.io/name: {{ include "agent-forge.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* What selects our Pods everywhere else. Pods of 1.1.0 lack the component. */}}
{{- define "agent-forge.podSelector" -}}
{{ include "agent-forge.selectorLabels" . }}
app.kubernetes.io/component: manager
{{- end }}

{{- define "agent-forge.labels" -}}
{{ include "agent-forge.selectorLabels" . }}
app.kubernetes.io/part-of: agent-forge
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "agent-forge.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "agent-forge.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "agent-forge.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}
{{- end }}

{{/* Subjects of a binding for the operator. */}}
{{- define "agent-forge.subjects" -}}
- kind: ServiceAccount
  name: {{ include "agent-forge.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}

{{/* Rules of a role in files/, which are copies of config/rbac. Context: a list of the root and the name of the file. */}}
{{- define "agent-forge.rules" -}}
{{- $role := (index . 0).Files.Get (printf "files/%s" (index . 1)) | fromYaml }}
{{- toYaml $role.rules }}
{{- end }}

{{/* "true" if one of the arguments switches the election on. */}}
{{- define "agent-forge.elects" -}}
{{- range concat .Values.args .Values.extraArgs }}
{{- if or (eq . "--leader-elect") (eq . "--leader-elect=true") }}true{{ end }}
{{- end }}
{{- end }}

{{/* A quantity of memory in bytes, as a decimal number. Empty if it cannot be read. */}}
{{- define "agent-forge.bytes" -}}
{{- $text := toString . }}
{{- $units := dict "" 1.0 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 }}
{{- $unit := regexFind "[a-zA-Z]*$" $text }}
{{- if and (hasKey $units $unit) (regexMatch "^[0-9.]+[a-zA-Z]*$" $text) }}
{{- mulf (trimSuffix $unit $text | float64) (get $units $unit) | int64 }}
{{- end }}
{{- end }}
