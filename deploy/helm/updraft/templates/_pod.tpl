{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{/* The pod of a component: (dict "root" $ "name" its name "values" its values) */}}
{{- define "updraft.pod" -}}
{{- $values := .values -}}
serviceAccountName: {{ include "updraft.serviceAccount" . }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- if not (kindIs "invalid" $values.hostUsers) }}
hostUsers: {{ $values.hostUsers }}
{{- end }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- include "updraft.placement" $values }}
{{- with ternary $values.gpu.runtimeClassName "" (gt (int $values.gpu.count) 0) | default $values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- /* After the drain, the front ends what is left and tells its clients, and the workers' container ends with it. */}}
terminationGracePeriodSeconds: {{ add $values.drainTimeoutSeconds $values.preStopSeconds 15 }}
{{- $restricted := dict "runAsNonRoot" true "seccompProfile" (dict "type" "RuntimeDefault") }}
{{- with $values.user }}{{ $_ := set $restricted "fsGroup" . }}{{ end }}
securityContext: {{- include "updraft.replaced" (list $restricted $values.podSecurityContext) | nindent 2 }}
{{- with $values.initContainers }}
initContainers: {{- toYaml . | nindent 2 }}
{{- end }}
containers:
  {{- range $container := $values.containers }}
  - {{ include "updraft.container" (dict "root" $.root "values" $values "container" $container) | nindent 4 | trim }}
  {{- end }}
  {{- with $values.sidecars }}{{ toYaml . | nindent 2 }}{{ end }}
volumes: {{- include "updraft.volumes" . | trim | nindent 2 }}
{{- $selector := dict "matchLabels" (include "updraft.selector" (dict "root" .root "component" $values.component) | fromYaml) }}
{{- with $values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  - {{ set (deepCopy .) "labelSelector" (default $selector .labelSelector) | toYaml | nindent 4 | trim }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Where a pod runs and what it can resolve: of pools and the writer, and of the release's own short pods. */}}
{{- define "updraft.placement" -}}
{{- range $field := list "priorityClassName" "schedulerName" "dnsPolicy" "dnsConfig" "nodeSelector" "tolerations" "affinity" }}
{{- with get $ $field }}
{{ dict $field . | toYaml }}
{{- end }}
{{- end }}
{{- end }}

{{/* The chart's own fields, replaced by a user's, without those that are null: (list own user's) */}}
{{- define "updraft.replaced" -}}
{{- $fields := mergeOverwrite (deepCopy (first .)) (deepCopy (default dict (last .))) -}}
{{- range $field, $value := $fields }}{{ if kindIs "invalid" $value }}{{ $_ := unset $fields $field }}{{ end }}{{ end -}}
{{- toYaml $fields -}}
{{- end }}

{{/* What the containers of a component mount, beside what users add: (dict "root" $ "name" its name "values" its values) */}}
{{- define "updraft.volumes" -}}
{{- $values := .values -}}
{{- range $values.containers }}
{{- with .directory }}
- name: {{ .volume }}
  emptyDir:
    sizeLimit: {{ .size }}
{{- end }}
{{- /* What no other container of the pod sees: a token. */}}
{{- with .temporary }}
- name: {{ .volume }}
  emptyDir:
    medium: Memory
    sizeLimit: 1Mi
{{- end }}
{{- end }}
{{- with $values.tokenSecret }}
- name: tokens
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- if ne $values.tls.mode "off" }}
- name: tls
  secret:
    secretName: {{ include "updraft.certificateSecret" . }}
    defaultMode: 0440
{{- end }}
{{- with $values.signers }}
- name: signers
  configMap:
    name: {{ . }}
{{- end }}
{{- with dig "functions" "configMap" "" $values }}
- name: functions
  configMap:
    name: {{ . }}
{{- end }}
{{- with $values.volumes }}{{ toYaml . | nindent 0 }}{{ end }}
{{- end }}
