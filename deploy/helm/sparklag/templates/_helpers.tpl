{{- define "sparklag.fullname" -}}
{{- $name := ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) (contains .Chart.Name .Release.Name) -}}
{{- .Values.fullnameOverride | default $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- /* Never change these: a Deployment's selector cannot be. */ -}}
{{- define "sparklag.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "sparklag.labels" -}}
{{ include "sparklag.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "sparklag.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (ternary (include "sparklag.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{- define "sparklag.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end -}}
{{- end -}}
{{- end -}}

{{- /* sparklag.toml. What the schema cannot refuse without showing it is refused here. */ -}}
{{- define "sparklag.settings" -}}
{{- $http := dict -}}
{{- if .Values.http.tokensSecret }}{{ $_ := set $http "http_tokens" (dict "file" "/run/sparklag/tokens/tokens.json") }}{{ end -}}
{{- if .Values.http.tlsSecret }}{{ $_ := set $http "http_tls" (dict "certfile" "/run/sparklag/tls/tls.crt" "keyfile" "/run/sparklag/tls/tls.key") }}{{ end -}}
{{- if .Values.ingress.enabled }}{{ $_ := set $http "http_hosts" (concat (.Values.settings.http_hosts | default list) .Values.ingress.hosts | uniq) }}{{ end -}}
{{- with mergeOverwrite (deepCopy .Values.settings) $http -}}
{{- if not (or .http_jwt (dig "http_tokens" "file" "" .) (eq "none" (default "" .http_auth))) -}}
{{- fail "nobody may use the REST interface yet: set http.tokensSecret, settings.http_jwt, or settings.http_auth=none for everyone who reaches the port" -}}
{{- end -}}
{{- if regexMatch "@|password" (dig "store" "url" "" .) -}}
{{- fail "settings.store.url has a user or a password: put the whole URL into existingSecret, as SPARKLAG_STORE__URL" -}}
{{- end -}}
{{- $shutdown := .shutdown_timeout_s | default 10 | float64 -}}
{{- if le (float64 $.Values.terminationGracePeriodSeconds) $shutdown -}}
{{- fail (printf "terminationGracePeriodSeconds = %v: takes more than settings.shutdown_timeout_s, %v" $.Values.terminationGracePeriodSeconds $shutdown) -}}
{{- end -}}
{{- /* Helm has every number as a float. No text ends so: it ends with a quotation mark. */ -}}
{{- regexReplaceAll "(?m) = (-?[0-9]+)\\.0$" (toToml . | trim | replace "\n\n" "\n") " = $1" -}}
{{- end -}}
{{- end -}}

{{- /* The ports of addresses and URLs, once each, as a JSON array. */ -}}
{{- define "sparklag.ports" -}}
{{- $ports := list -}}
{{- range regexFindAll "[^,]+" (join "," . | nospace) -1 -}}
{{- $usual := ternary 443 (ternary 80 9092 (hasPrefix "http:" .)) (hasPrefix "https:" .) -}}
{{- $named := regexFind ":[0-9]+$" (regexReplaceAll "(://[^/]*)/.*" . "$1") -}}
{{- $ports = append $ports (trimPrefix ":" $named | default $usual | int) -}}
{{- end -}}
{{- $ports | uniq | toJson -}}
{{- end -}}

{{- /* The port of health and metrics: sparklag-http, or one of its own, which asks for no certificate. */ -}}
{{- define "sparklag.monitoring" -}}
{{ ternary "monitoring" "http" (hasKey .Values.settings "http_monitoring_port") }}
{{- end -}}

{{- /* Where people open the page; empty where the chart does not know. */ -}}
{{- define "sparklag.pageUrl" -}}
{{- $host := ternary (first .Values.ingress.hosts) "" .Values.ingress.enabled -}}
{{- .Values.prometheusRule.pageUrl | default (ternary (printf "%s://%s" (ternary "http" "https" (empty .Values.ingress.tls)) $host) "" .Values.ingress.enabled) -}}
{{- end -}}

{{- define "sparklag.seconds" -}}
{{ mul (regexFind "[0-9]+" .) (ternary 60 1 (hasSuffix "m" .)) }}
{{- end -}}

{{- define "sparklag.isTls" -}}
{{- if or .Values.http.tlsSecret .Values.settings.http_tls }}true{{ end -}}
{{- end -}}

{{- define "sparklag.probe" -}}
httpGet:
  path: {{ .path }}
  port: sparklag-{{ include "sparklag.monitoring" .root }}
  {{- if include "sparklag.isTls" .root }}
  scheme: HTTPS
  {{- end }}
{{ toYaml .timing }}
{{- end -}}
