{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{/* The pod of a component: (dict "root" $ "name" its name "values" its values) */}}
{{- define "updraft.pod" -}}
{{- $values := .values -}}
serviceAccountName: {{ include "updraft.serviceAccount" . }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- if and $values.gpu.count $values.gpu.runtimeClassName }}
runtimeClassName: {{ $values.gpu.runtimeClassName }}
{{- end }}
terminationGracePeriodSeconds: {{ add $values.drainTimeoutSeconds $values.preStopSeconds 15 }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile:
    type: RuntimeDefault
containers:
  - name: {{ $values.kind }}
    image: {{ include "updraft.image" (dict "image" $values.image "appVersion" .root.Chart.AppVersion) }}
    imagePullPolicy: {{ $values.image.pullPolicy }}
    args: [serve]
    env: {{- include "updraft.env" . | nindent 6 }}
    ports:
      - name: flight
        containerPort: {{ $values.port }}
      - name: health
        containerPort: {{ add $values.port 10 }}
      - name: metrics
        containerPort: {{ add $values.port 1010 }}
    {{- $probe := dict "port" (add $values.port 10 | int) "service" "arrow.flight.protocol.FlightService" }}
    startupProbe:
      grpc: {{- toYaml $probe | nindent 8 }}
      periodSeconds: 2
      timeoutSeconds: 3
      failureThreshold: {{ div (add $values.startupTimeoutSeconds 1) 2 }}
    readinessProbe:
      grpc: {{- toYaml $probe | nindent 8 }}
      periodSeconds: 5
      timeoutSeconds: 3
    {{- /* Not the readiness check: a draining pod is not ready, but must not be restarted. */}}
    livenessProbe:
      grpc: {{- toYaml (set $probe "service" "updraft.live") | nindent 8 }}
      periodSeconds: 10
      timeoutSeconds: 5
      failureThreshold: 3
      {{- /* A hanging pod does not drain, so do not wait for it as long as for a drain. */}}
      terminationGracePeriodSeconds: {{ add $values.preStopSeconds 5 }}
    lifecycle:
      preStop:
        exec:
          command: [sleep, {{ $values.preStopSeconds | quote }}]
    resources: {{- include "updraft.resources" $values | nindent 6 }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities:
        drop: [ALL]
    volumeMounts:
      - name: scratch
        mountPath: /tmp
      {{- if not $values.auth.insecureNoToken }}
      - name: tokens
        mountPath: /etc/updraft/tokens
        readOnly: true
      {{- end }}
      {{- if ne $values.tls.mode "off" }}
      - name: tls
        mountPath: /etc/updraft/tls
        readOnly: true
      {{- end }}
      {{- if dig "functions" "configMap" "" $values }}
      - name: functions
        mountPath: /opt/updraft/functions
        readOnly: true
      {{- end }}
      {{- with $values.volumeMounts }}{{ toYaml . | nindent 6 }}{{ end }}
volumes:
  - name: scratch
    emptyDir:
      sizeLimit: {{ $values.scratchSize }}
  {{- if not $values.auth.insecureNoToken }}
  - name: tokens
    secret:
      secretName: {{ default (include "updraft.tokenSecret" .root) $values.auth.existingSecret }}
      defaultMode: 0440
  {{- end }}
  {{- if ne $values.tls.mode "off" }}
  - name: tls
    secret:
      secretName: {{ include "updraft.certificateSecret" . }}
      defaultMode: 0440
  {{- end }}
  {{- with dig "functions" "configMap" "" $values }}
  - name: functions
    configMap:
      name: {{ . }}
  {{- end }}
  {{- with $values.volumes }}{{ toYaml . | nindent 2 }}{{ end }}
topologySpreadConstraints:
  - topologyKey: kubernetes.io/hostname
    maxSkew: {{ $values.maxSkew }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "updraft.selector" (dict "root" .root "component" $values.component) | nindent 8 }}
{{- with $values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "updraft.resources" -}}
{{- $resources := deepCopy .resources -}}
{{- if .gpu.count -}}
{{- $limits := default dict $resources.limits -}}
{{- $_ := set $resources "limits" (set $limits .gpu.resource (.gpu.count | int)) -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end }}

{{/* `settings` as environment variables, with those that the chart sets from other values. */}}
{{- define "updraft.env" -}}
{{- $values := .values -}}
{{- $settings := dict
  "listen" (printf "0.0.0.0:%d" ($values.port | int))
  "adminListen" (printf "0.0.0.0:%d" (add $values.port 10 | int))
  "metricsListen" (printf "0.0.0.0:%d" (add $values.port 1010 | int))
  "drainTimeoutSeconds" $values.drainTimeoutSeconds -}}
{{- if $values.auth.insecureNoToken -}}
{{- $_ := set $settings "insecureNoToken" true -}}
{{- else -}}
{{- $_ := set $settings "tokenFile" "/etc/updraft/tokens/tokens" -}}
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
{{- $_ := set $settings "allowSessionFunctions" $values.allowSessionFunctions -}}
{{- with $values.count -}}{{- $_ := set $settings "workers" . -}}{{- end -}}
{{- with $values.functions.modules -}}{{- $_ := set $settings "functions" (join "," .) -}}{{- end -}}
{{- else -}}
{{- with $values.roots -}}{{- $_ := set $settings "root" (join "," .) -}}{{- end -}}
{{- end -}}
{{- range $setting, $value := mergeOverwrite $settings (default dict $values.settings) }}
- name: UPDRAFT_{{ $setting | snakecase | upper }}
  value: {{ if kindIs "float64" $value }}{{ if eq $value (floor $value) }}{{ $value | int64 | quote }}{{ else }}{{ $value | quote }}{{ end }}{{ else }}{{ $value | quote }}{{ end }}
{{- end }}
{{- if and (eq $values.kind "pool") (not $values.count) }}
- name: UPDRAFT_WORKERS
  valueFrom:
    resourceFieldRef:
      resource: {{ if dig "limits" "cpu" "" $values.resources }}limits.cpu{{ else }}requests.cpu{{ end }}
{{- end }}
{{- if dig "functions" "configMap" "" $values }}
- name: PYTHONPATH
  value: /opt/updraft/functions
{{- end }}
{{- with $values.env }}{{ toYaml . | nindent 0 }}{{ end }}
{{- end }}
