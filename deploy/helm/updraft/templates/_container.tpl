{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{/*
One container of a component's pod, with the additions and replacements of the user's `container`:
(dict "root" $ "values" the component's values "container" one of its containers)
*/}}
{{- define "updraft.container" -}}
{{- $made := include "updraft.ownContainer" . | fromYaml -}}
{{- $users := deepCopy (default dict .container.values.container) -}}
{{- /* Only a container that listens can answer probes. In a pool that is the front. */}}
{{- if not .container.listens -}}{{- $users = omit $users "startupProbe" "readinessProbe" "livenessProbe" -}}{{- end -}}
{{- range $list := list "env" "envFrom" "volumeMounts" -}}
{{- with concat (get $made $list | default list) (get $users $list | default list) -}}{{- $_ := set $users $list . -}}{{- end -}}
{{- end -}}
{{- include "updraft.replaced" (list $made $users) -}}
{{- end }}

{{/*
The chart's part of a container. A container that listens has ports, probes, tokens and certificates. A pool's workers, which
run user code, have none of these.
*/}}
{{- define "updraft.ownContainer" -}}
{{- $values := .values -}}
{{- $container := .container -}}
{{- $own := $container.values -}}
name: {{ $container.name }}
image: {{ include "updraft.image" (dict "image" $own.image "appVersion" .root.Chart.AppVersion) }}
args: [{{ $container.command }}]
env: {{- include "updraft.env" . | trim | nindent 2 }}
{{- if $container.listens }}
ports:
  - name: flight
    containerPort: {{ $values.port }}
  - name: health
    containerPort: {{ add $values.port 10 }}
  - name: metrics
    containerPort: {{ add $values.port 1010 }}
{{- $asked := dict "port" (add $values.port 10 | int) "service" "arrow.flight.protocol.FlightService" }}
startupProbe:
  grpc: {{- toYaml $asked | nindent 4 }}
  periodSeconds: 2
  timeoutSeconds: 3
  failureThreshold: {{ div (include "updraft.startupSeconds" $values | int | add1) 2 }}
readinessProbe:
  {{- /* These defaults make a pod without workers unready within a second. */}}
  grpc: {{- toYaml $asked | nindent 4 }}
  periodSeconds: 1
  timeoutSeconds: 3
  failureThreshold: 1
{{- /* Do not ask for readiness here: a draining pod is not ready, but must not be restarted. */}}
livenessProbe:
  grpc: {{- toYaml (set $asked "service" "updraft.live") | nindent 4 }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
  {{- /* A pod that hangs cannot drain, so give it less time than a drain takes. */}}
  terminationGracePeriodSeconds: {{ add (include "updraft.preStopSeconds" .) 5 }}
{{- end }}
lifecycle:
  preStop:
    exec:
      command: [sleep, {{ include "updraft.preStopSeconds" . | quote }}]
resources: {{- include "updraft.resources" $own | nindent 2 }}
{{- $restricted := dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "capabilities" (dict "drop" (list "ALL")) }}
{{- with $own.user }}{{ $_ := set $restricted "runAsUser" . }}{{ $_ := set $restricted "runAsGroup" . }}{{ end }}
securityContext: {{- toYaml $restricted | nindent 2 }}
volumeMounts:
  - name: {{ $container.directory.volume }}
    mountPath: {{ $container.directory.path }}
  {{- with $container.temporary }}
  - name: {{ .volume }}
    mountPath: {{ .path }}
  {{- end }}
  {{- with $container.reads }}
  - name: {{ .volume }}
    mountPath: {{ .path }}
    readOnly: true
  {{- end }}
  {{- if and $container.listens $values.tokenSecret }}
  - name: tokens
    mountPath: /etc/updraft/tokens
    readOnly: true
  {{- end }}
  {{- if and $container.listens (ne $values.tls.mode "off") }}
  - name: tls
    mountPath: /etc/updraft/tls
    readOnly: true
  {{- end }}
  {{- if $own.signers }}
  - name: signers
    mountPath: /etc/updraft/signers
    readOnly: true
  {{- end }}
  {{- if dig "functions" "configMap" "" $own }}
  - name: functions
    mountPath: /opt/updraft/functions
    readOnly: true
  {{- end }}
{{- end }}

{{/*
Seconds between a pod's removal from the Service and its drain, so that clients no longer find the pod when the drain begins.
The cluster's DNS and proxies learn of the removal within a second or two.
*/}}
{{- define "updraft.preStopSeconds" -}}5{{- end }}

{{/*
Seconds after which a pod that is not up is restarted. For a pool, this time is longer than a registered function may take to
load, so that a pool comes up without a function whose load hangs. If loading has no limit, this time is a day. A writer loads
only the libraries of its GPU.
*/}}
{{- define "updraft.startupSeconds" -}}
{{- if ne .kind "pool" -}}300
{{- else -}}
{{- $load := dig "loadTimeoutSeconds" 600 (default dict .settings) | float64 -}}
{{- if $load -}}{{- add (ceil $load) 120 -}}{{- else -}}86400{{- end -}}
{{- end -}}
{{- end }}

{{/*
The resources of a container, with a request of disk space for its scratch directory. The scheduler then takes the directory
into account, and the kubelet evicts other pods first while the container uses less than it requests.
*/}}
{{- define "updraft.resources" -}}
{{- $resources := deepCopy .resources -}}
{{- $_ := set $resources "requests" (merge (default dict $resources.requests) (dict "ephemeral-storage" "1Gi")) -}}
{{- toYaml $resources -}}
{{- end }}

{{/*
Environment variables of a container: those settings that it takes, from `settings` and from the values that the chart turns
into settings.
*/}}
{{- define "updraft.env" -}}
{{- $values := .values -}}
{{- $container := .container -}}
{{- $settings := dict
  "listen" (printf "0.0.0.0:%d" ($values.port | int))
  "adminListen" (printf "0.0.0.0:%d" (add $values.port 10 | int))
  "metricsListen" (printf "0.0.0.0:%d" (add $values.port 1010 | int))
  "drainTimeoutSeconds" $values.drainTimeoutSeconds -}}
{{- if $values.auth.insecureNoToken -}}
{{- $_ := set $settings "insecureNoToken" true -}}
{{- else if $values.auth.plainTokens -}}
{{- $_ := set $settings "tokenFile" "/etc/updraft/tokens/tokens" -}}
{{- else if not (or (and $values.auth.existingSecret (dig "identitiesFile" "" (mergeOverwrite (dict) (default dict $container.settings) (default dict $values.settings)))) $values.tls.clientCertificates) -}}
{{- fail (printf "%s: auth.plainTokens is false, and nobody is named instead: set auth.existingSecret and settings.identitiesFile, or tls.clientCertificates" $values.component) -}}
{{- end -}}
{{- if ne $values.tls.mode "off" -}}
{{- $_ := set $settings "tlsCertificateFile" "/etc/updraft/tls/tls.crt" -}}
{{- $_ := set $settings "tlsKeyFile" "/etc/updraft/tls/tls.key" -}}
{{- if $values.tls.clientCertificates -}}
{{- $_ := set $settings "tlsClientCaFile" "/etc/updraft/tls/ca.crt" -}}
{{- end -}}
{{- end -}}
{{- with .root.Values.tracing.endpoint -}}
{{- $_ := set $settings "traceEndpoint" . -}}
{{- end -}}
{{- if eq $values.kind "pool" -}}
{{- include "updraft.checkSessionFunctions" $values -}}
{{- $_ := set $settings "sessionFunctions" $values.sessionFunctions -}}
{{- /* Less than the volume's size: a function that fills the volume gets an error before the kubelet evicts the pod. */ -}}
{{- $_ := set $settings "workerScratchBytes" (include "updraft.bytes" $values.scratchSize | int64 | mulf 0.9 | int64) -}}
{{- /* Less than the volume's size: the front refuses artifacts of sessions before the kubelet evicts the pod. */ -}}
{{- $_ := set $settings "artifactStoreBytes" (include "updraft.bytes" $values.frontScratchSize | int64 | mulf 0.8 | int64) -}}
{{- if $values.signers -}}{{- $_ := set $settings "signersFile" "/etc/updraft/signers/signers.toml" -}}{{- end -}}
{{- with $values.count -}}{{- $_ := set $settings "workers" . -}}{{- end -}}
{{- with $values.functions.modules -}}{{- $_ := set $settings "functions" (join "," .) -}}{{- end -}}
{{- else -}}
{{- with $values.roots -}}{{- $_ := set $settings "root" (join "," .) -}}{{- end -}}
{{- end -}}
{{- $_ := mergeOverwrite $settings (default dict $container.settings) (default dict $values.settings) -}}
{{- $known := get (.root.Files.Get "settings.yaml" | fromYaml).containers $container.name -}}
{{- range $setting, $value := $settings }}
{{- if has $setting $known }}
- name: UPDRAFT_{{ $setting | snakecase | upper }}
  value: {{ if kindIs "float64" $value }}{{ if eq $value (floor $value) }}{{ $value | int64 | quote }}{{ else }}{{ $value | quote }}{{ end }}{{ else }}{{ $value | quote }}{{ end }}
{{- end }}
{{- end -}}
{{- if $container.listens }}
{{- /* With this variable, errors name values of the chart instead of command-line options. */}}
- name: UPDRAFT_CONFIGURED_BY
  value: {{ ternary (printf "pools.%s" (trimPrefix "pool-" $values.component)) $values.component (eq $values.kind "pool") }}
{{- end }}
{{- if and (has "workers" $known) (not $values.count) }}
- name: UPDRAFT_WORKERS
  valueFrom:
    resourceFieldRef:
      containerName: workers
      resource: {{ if dig "limits" "cpu" "" $values.resources }}limits.cpu{{ else }}requests.cpu{{ end }}
{{- end }}
{{- if dig "functions" "configMap" "" $container.values }}
- name: PYTHONPATH
  value: /opt/updraft/functions
{{- end }}
{{- with $container.values.env }}{{ toYaml . | nindent 0 }}{{ end }}
{{- end }}
