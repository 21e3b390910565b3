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

{{/* "true" if metrics are served over HTTPS. A flag in the arguments goes before the value. */}}
{{- define "agent-forge.metricsSecure" -}}
{{- $secure := .Values.metrics.secure }}
{{- range concat .Values.args .Values.extraArgs }}
{{- if regexMatch "^--metrics-secure(=|$)" . }}
{{- $secure = not (regexMatch "(?i)=(n|no|f|false|off|0)$" .) }}
{{- end }}
{{- end }}
{{- if $secure }}true{{ end }}
{{- end }}

{{/* Name of the Secret with the certificate that OpenShift makes for the Service of the metrics. Empty if it makes none. */}}
{{- define "agent-forge.openshiftSecret" -}}
{{- $given := .Values.metrics.certificate.secretName }}
{{- range concat .Values.args .Values.extraArgs }}
{{- if hasPrefix "--metrics-cert-path=" . }}{{ $given = . }}{{ end }}
{{- end }}
{{- if and .Values.openshift.monitoring .Values.metrics.service.enabled (include "agent-forge.metricsSecure" .) (not $given) -}}
{{ include "agent-forge.fullname" . }}-metrics-tls
{{- end }}
{{- end }}

{{/* Name of the Secret with the certificate of metrics and web page. Empty if the operator makes one. */}}
{{- define "agent-forge.servingSecret" -}}
{{- default (include "agent-forge.openshiftSecret" .) .Values.metrics.certificate.secretName }}
{{- end }}

{{/* The arguments of the operator, as a list. Of a flag that is given twice, the last one counts. */}}
{{- define "agent-forge.args" -}}
{{- $args := .Values.args }}
{{- $given := regexMatch "(?m)^--metrics-secure(=|$)" (concat .Values.args .Values.extraArgs | join "\n") }}
{{- if not (or .Values.metrics.secure $given) }}
{{- $args = append $args "--metrics-secure=false" }}
{{- end }}
{{- if include "agent-forge.servingSecret" . }}
{{- $args = append $args "--metrics-cert-path=/etc/agent-forge/serving" }}
{{- end }}
{{- if .Values.byohInstaller.enabled }}
{{- $args = append $args "--byoh-installer" }}
{{- end }}
{{- concat $args .Values.extraArgs | toYaml }}
{{- end }}

{{/* `https` or `http`: how Prometheus asks. */}}
{{- define "agent-forge.scheme" -}}
{{- default (ternary "https" "http" (eq "true" (include "agent-forge.metricsSecure" .))) .Values.metrics.serviceMonitor.scheme }}
{{- end }}

{{/* Name of the ServiceAccount, its binding and the Secret with its token by which Prometheus reads the metrics. Empty if there
are none. */}}
{{- define "agent-forge.reader" -}}
{{- $monitor := .Values.metrics.serviceMonitor }}
{{- if and $monitor.enabled (eq (include "agent-forge.scheme" .) "https") (not $monitor.bearerTokenFile) -}}
{{ include "agent-forge.fullname" . }}-metrics-reader
{{- end }}
{{- end }}

{{- define "agent-forge.readerRole" -}}
{{- default (printf "%s-metrics-reader" (include "agent-forge.fullname" .)) .Values.metrics.readerRole.name }}
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
